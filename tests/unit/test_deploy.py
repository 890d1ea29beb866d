"""The image, Compose, systemd and Kubernetes speak of the same user, port and paths, as docs/how-to/deploy.md does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.docs.pages import ROOT, runnable
from walrelay.cli.app import app
from walrelay.config.observability import MetricsSettings

DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
UNIT = DEPLOY / "systemd" / "walrelay@.service"
USER, PORT, HOME, CONFIG = 10001, 9187, "/var/lib/walrelay", "/etc/walrelay/pipeline.yaml"
COMMANDS = {
    "pip": "make wheel",
    "walrelay": "tests/unit/test_wheel.py",
    "python": "make env",
    "python3": "make wheel",
    "docker": "make image, which uses buildah",
    "/opt/walrelay/bin/pip": "make wheel",
    "/opt/walrelay/bin/python": "make env",
    "install": "the unit is verified below",
    "systemctl": "the unit is verified below",
    "kubectl": "the manifest is looked at below",
}
"""What the page tells to run, and where it is."""


def manifest(kind: str) -> Any:
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / "walrelay.yaml").read_text(encoding="utf-8"))
    return next(one for one in found if one["kind"] == kind)


def instruction(name: str) -> list[str]:
    text = DOCKERFILE.replace("\\\n", " ")
    return [line.partition(" ")[2].strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def test_every_command_of_the_page_is_tried_somewhere() -> None:
    used = {line.split()[0] for block in runnable("docs/how-to/deploy.md") for line in block.lines()}
    assert used == COMMANDS.keys()
    said = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(deploy/[^`]+\w)`", said):
        assert (ROOT / path).exists(), path


def test_the_image_runs_a_pipeline_as_a_user_of_its_own_and_is_stopped_by_the_signal_that_walrelay_obeys() -> None:
    assert json.loads(instruction("ENTRYPOINT")[-1])[-1] == "walrelay"
    assert json.loads(instruction("CMD")[-1]) == ["run", "-c", CONFIG]
    assert instruction("USER") == [f"{USER}:{USER}"]
    assert instruction("VOLUME") == [HOME] and instruction("EXPOSE") == [str(PORT)]
    assert instruction("STOPSIGNAL") == ["SIGTERM"]
    [health] = instruction("HEALTHCHECK")
    assert "/health" in health and "WALRELAY_METRICS_PORT" in health


def test_the_image_s_variables_are_settings_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(re.findall(r"(WALRELAY_\w+)=(\S+)", DOCKERFILE))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = MetricsSettings()
    assert (settings.host, settings.port) == ("0.0.0.0", PORT) and len(variables) == 2


def test_what_the_image_is_made_of_is_locked_and_nothing_else_is_sent_to_the_builder() -> None:
    for lock in ("image", "backend"):
        text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
        assert "--hash=sha256:" in text and "://" not in re.sub(r"^\s*#.*$", "", text, flags=re.M)
    assert DOCKERFILE.count("--require-hashes") == 2
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    copied = {path for line in instruction("COPY") if "--from" not in line for path in line.split()[:-1]}
    assert copied <= {line[1:] for line in ignored if line.startswith("!")}


@pytest.mark.parametrize("words", ["compose", "kubernetes"])
def test_the_configurations_are_ones_that_walrelay_runs(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "shop")
    monkeypatch.setenv("PGPASSWORD", "shop")
    text = (DEPLOY / "compose" / "pipeline.yaml").read_text(encoding="utf-8")
    if words == "kubernetes":
        text = manifest("ConfigMap")["data"]["pipeline.yaml"]
    (tmp_path / "pipeline.yaml").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["config", "check", "-c", str(tmp_path / "pipeline.yaml")])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(text)["store"]["path"].startswith(HOME)


def test_compose_mounts_what_is_there_and_publishes_on_this_machine_alone() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    for name, service in services.items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], (name, mount)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    relay = services["walrelay"]
    assert f"./compose/pipeline.yaml:{CONFIG}:ro" in relay["volumes"] and f"walrelay:{HOME}" in relay["volumes"]
    assert (DEPLOY / relay["build"] / "Dockerfile").exists()
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = scraped["scrape_configs"]
    assert job["job_name"] == "walrelay" and job["static_configs"] == [{"targets": [f"walrelay:{PORT}"]}]


def test_kubernetes_runs_one_at_a_time_as_the_image_s_user_with_its_paths_and_port() -> None:
    stateful = manifest("StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    [container] = pod["containers"]
    assert stateful["replicas"] == 1
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
    assert container["ports"] == [{"name": "metrics", "containerPort": PORT}]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness", "startup")}
    assert probes == {"liveness": "/health", "readiness": "/ready", "startup": "/health"}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounted == {"config": str(Path(CONFIG).parent), "state": HOME, "tmp": "/tmp"}
    assert stateful["volumeClaimTemplates"][0]["metadata"]["name"] == "state"
    assert stateful["selector"]["matchLabels"] == stateful["template"]["metadata"]["labels"]
    assert manifest("Service")["spec"]["selector"] == stateful["selector"]["matchLabels"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    ours = str(Path(sys.executable).with_name("walrelay"))
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/walrelay/bin/walrelay", ours), encoding="utf-8")
    verify = ["systemd-analyze", "verify", str(tmp_path / "walrelay@shop.service")]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "walrelay" not in done.stderr, done.stderr
