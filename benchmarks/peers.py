"""The environment of the peer we compare with: made from requirements/peers.lock when it is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-peers"
LOCK = ROOT / "requirements" / "peers.lock"
SCRIPT = Path(__file__).resolve().parent / "peer_duckdb.py"


class PeerError(Exception):
    """The peer cannot be run; the text says why."""


def peer_command(*arguments: str) -> list[str]:
    """The command that runs the peer's script. Isolated, so that it sees its own packages only."""
    return [str(_python()), "-I", str(SCRIPT), *arguments]


def _python() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    probe = [str(python), "-I", "-c", "import duckdb, duckdb_extension_postgres_scanner"]
    if not python.exists() or subprocess.run(probe, capture_output=True, check=False).returncode:
        _create(python)
    return python


def _create(python: Path) -> None:
    uv = _uv()
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    for command in (
        [*uv, "venv", "--quiet", "--python", sys.executable, str(ENVIRONMENT)],
        [*uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes", "-r", str(LOCK)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"{ENVIRONMENT.name} could not be made: {done.stderr.strip() or done.stdout.strip()}")


def _uv() -> list[str]:
    """uv as `make` would find it."""
    for candidate in (["uv"], [str(ROOT / ".venv-tools/bin/uv")], [sys.executable, "-m", "uv"]):
        try:
            if subprocess.run([*candidate, "--version"], capture_output=True, check=False).returncode == 0:
                return candidate
        except FileNotFoundError:
            continue
    raise PeerError("uv is missing: `make bench` fetches it, or pip install uv")
