# The replicator: one pipeline from its configuration, in a container. Built by docker, podman and buildah alike:
#
#   docker build -t walrelay .
#   docker run -v ./pipeline.yaml:/etc/walrelay/pipeline.yaml:ro -v walrelay:/var/lib/walrelay walrelay
#
# docs/how-to/deploy.md says the rest. Nothing secret is needed to build it; where packages come from a registry of one's
# own, its pip.conf and certificates are mounted for the step that needs them, and are in no layer:
#
#   docker build --secret id=pip,src=pip.conf --secret id=ca,src=ca.pem .
#
# BASE is any Debian or Ubuntu with Python 3.11 and Java 17, or newer ones.
ARG BASE=docker.io/library/debian:bookworm-slim

# ---- what both the build and the image need: the same Java, since it checks that the archive of classes is its own
FROM ${BASE} AS runtime
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates default-jre-headless python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/*.log /var/log/apt
# Kernels are compiled here and run elsewhere: for any processor of this kind, not for the one that builds.
ENV NUMBA_CPU_NAME=generic

FROM runtime AS build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv
RUN python3 -m venv /opt/walrelay && python3 -m venv /opt/backend
WORKDIR /build
COPY requirements/image.lock requirements/backend.lock ./requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.pem \
    /opt/walrelay/bin/pip install --quiet --no-cache-dir --no-deps --require-hashes -r requirements/image.lock \
    && /opt/backend/bin/pip install --quiet --no-cache-dir --no-deps --require-hashes -r requirements/backend.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/backend/bin/python -m hatchling build -t wheel -d dist \
    && /opt/walrelay/bin/pip install --quiet --no-cache-dir --no-deps --no-index dist/*.whl \
    && /opt/walrelay/bin/pip uninstall --quiet --yes pip setuptools \
    && /opt/walrelay/bin/python -m compileall -q /opt/walrelay/lib \
    && /opt/walrelay/bin/python -m walrelay.decode.warm \
    && /opt/walrelay/bin/python -m walrelay.spark.class_archive \
    && test -s /opt/walrelay/share/walrelay/spark-classes.jsa \
    && chmod -R a+rX,go-w /opt/walrelay

# ---- the image: whoever runs in it may write to its volume and to /tmp, and to nothing else
FROM runtime
RUN useradd --uid 10001 --user-group --home-dir /var/lib/walrelay --shell /usr/sbin/nologin walrelay \
    && install --directory --owner walrelay --group walrelay --mode 0700 /var/lib/walrelay \
    && install --directory --mode 0755 /etc/walrelay
COPY --from=build /opt/walrelay /opt/walrelay
ENV PATH=/opt/walrelay/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/walrelay \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    WALRELAY_METRICS_HOST=0.0.0.0 \
    WALRELAY_METRICS_PORT=9187
LABEL org.opencontainers.image.title="walrelay" \
    org.opencontainers.image.description="Postgres replication on Spark: one pipeline from its configuration" \
    org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
WORKDIR /var/lib/walrelay
VOLUME /var/lib/walrelay
EXPOSE 9187
# The first is asked to end, ends a batch in order, and takes Spark and the capture process along.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=20s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as ask; port = os.environ['WALRELAY_METRICS_PORT']; ask.urlopen(f'http://127.0.0.1:{port}/health', timeout=15)"]
ENTRYPOINT ["tini", "-s", "--", "walrelay"]
CMD ["run", "-c", "/etc/walrelay/pipeline.yaml"]
