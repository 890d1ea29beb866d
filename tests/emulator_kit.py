"""Finds what stands in for a service: programs in environments of their own, made by `make emulators`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1] / ".venv-emulators"
"""WALRELAY_EMULATORS names another place."""


def emulator_python(name: str) -> Path:
    """The interpreter of an emulator's environment. Without one its tests are skipped, saying how to get it; in CI that
    is a failure."""
    python = Path(os.environ.get("WALRELAY_EMULATORS", HOME)) / name / "bin" / "python"
    if not python.exists():
        missing = f"the emulator of {name} is not installed: run make emulators, and see what it says"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return python
