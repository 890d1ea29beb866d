"""A Postgres that speaks TLS, and certificates for both ends.

The embedded servers are built without it; Debian's is not. It is used where it is installed, else fetched with
`apt-get download` and unpacked into the cache, which installs nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.postgres_versions import EmbeddedPostgresError, Installation, build_once

INSTALLED = Path("/usr/lib/postgresql")
DOWNLOAD_SECONDS = 300
ADVICE = "install Debian's package `postgresql`, or have apt-get with the Debian archive in reach"


def debian_installation() -> Installation:
    """Debian's Postgres. Raises `EmbeddedPostgresError`, with what to do, where it cannot be had."""
    found = _newest(INSTALLED)
    if found is not None:
        return Installation(int(found.name), found, "", ("bin", "lib"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = build_once(cache / "walrelay" / "postgres" / "debian", _unpacked)
    found = _newest(root / INSTALLED.relative_to("/"))
    if found is None:
        raise EmbeddedPostgresError(f"no Postgres in {root}: remove it, then {ADVICE}")
    return Installation(int(found.name), root, str(found.relative_to(root)), ("usr",))


def _newest(directory: Path) -> Path | None:
    versions = [program.parent.parent for program in directory.glob("*/bin/postgres")]
    return max((one for one in versions if one.name.isdigit()), key=lambda one: int(one.name), default=None)


def _unpacked(scratch: Path) -> Path:
    version = _run(["apt-cache", "depends", "postgresql"], scratch).partition("Depends: postgresql-")[2].split()
    if not version or not version[0].isdigit():
        raise EmbeddedPostgresError(f"apt knows no package postgresql; {ADVICE}")
    _run(["apt-get", "download", f"postgresql-{version[0]}", f"postgresql-client-{version[0]}"], scratch)
    for archive in scratch.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(scratch / "root")], scratch)
    return scratch / "root"


def _run(command: list[str], directory: Path) -> str:
    if shutil.which(command[0]) is None:
        raise EmbeddedPostgresError(f"a Postgres with TLS needs {command[0]}, which is not here; {ADVICE}")
    try:
        done = subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=DOWNLOAD_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"{' '.join(command)} failed; {ADVICE}. It said:\n{said}") from error
    return done.stdout.decode(errors="replace")


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, with the `openssl` command."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._own = self._make(name, ["-x509"])

    @property
    def certificate(self) -> Path:
        return self._own.certificate

    def issue(self, name: str, *, host: str | None = None) -> Identity:
        """For a server that is called `host`, or for the role `name`."""
        signed = ["-x509", "-CA", str(self._own.certificate), "-CAkey", str(self._own.key)]
        named = ["-addext", f"subjectAltName=DNS:{host}"] if host else []
        return self._make(name, [*signed, "-addext", "basicConstraints=critical,CA:FALSE", *named])

    def _make(self, name: str, how: list[str]) -> Identity:
        made = Identity(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        files = ["-keyout", str(made.key), "-out", str(made.certificate)]
        _run(["openssl", "req", *how, *curve, *files, "-subj", f"/CN={name}"], self._directory)
        made.key.chmod(0o600)
        return made


@contextmanager
def tls_server(authority: Authority, *, host: str) -> Iterator[EmbeddedPostgres]:
    """A server whose certificate is for `host`; it takes what its rules allow, encrypted or not."""
    identity = authority.issue("server", host=host)
    with EmbeddedPostgres(installation=debian_installation()) as server:
        server.serve_tls(certificate=identity.certificate, key=identity.key, authority=authority.certificate)
        yield server
