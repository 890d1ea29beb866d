"""What the figures were measured on, and where they are written."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("walrelay", "pyspark", "pyarrow", "numpy", "numba", "duckdb", "psycopg")


def describe_machine() -> dict[str, Any]:
    """The machine, its load before we began, and the versions of what runs on it."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def write_result(directory: Path, name: str, result: dict[str, Any]) -> Path:
    """Write one benchmark's figures as JSON and return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
