"""Compiled kernels where the sources may only be read: they are used, or go to a place of the user's, once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import walrelay
from walrelay.decode.warm import ensure_warm

SOURCES = Path(walrelay.__file__).parent
NEEDED = ("__init__.py", "errors.py", "config", "decode", "model", "wire")
DECODE = """
import json, sys
from walrelay.decode import fixed
from walrelay.decode.base import ARROW, Fields, Tally
from walrelay.decode.registry import decoder_for
from walrelay.errors import WalrelayError
from walrelay.model.schema import PgType
from walrelay.wire.kernel_places import kernel_place
try:
    found = decoder_for(PgType(23, "int4"), ARROW).decode(Fields.of([bytes([0, 0, 1, 2]), None]), Tally(ARROW))
except WalrelayError as error:
    print(json.dumps({"error": error.code, "hint": error.hint}))
    sys.exit()
assert found.to_pylist() == [258, None]
stats = fixed.read_4.stats
place = kernel_place().directory("decode")
found, made = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
print(json.dumps({"place": str(place), "found": found, "made": made}))
"""
# Root may write anywhere, unless it gives that up.
AS_ANYBODY = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The packages that have kernels, for reading only; without what was compiled."""
    to = tmp_path / "site-packages"
    to.joinpath("walrelay").mkdir(parents=True)
    for name in NEEDED:
        if (SOURCES / name).is_dir():
            shutil.copytree(SOURCES / name, to / "walrelay" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(SOURCES / name, to / "walrelay" / name)
    return to


def closed(directory: Path) -> Path:
    subprocess.run(["chmod", "-R", "a-w", directory], check=True)
    return directory


def decode(installed: Path, **environment: str) -> Any:
    known = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-c", DECODE], capture_output=True, text=True, check=False, cwd="/",
        env={**known, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kernels_go_to_the_users_cache_and_are_compiled_once(installed: Path, tmp_path: Path) -> None:
    closed(installed)
    cache = tmp_path / "home" / ".cache"
    first = decode(installed, HOME=str(tmp_path / "home"))
    assert Path(first["place"]).is_relative_to(cache / "walrelay") and first["made"] == 1
    again = decode(installed, HOME=str(tmp_path / "home"))
    assert again == {"place": first["place"], "found": 1, "made": 0}


def test_kernels_that_came_with_the_sources_are_used_by_whoever_may_read_them(installed: Path, tmp_path: Path) -> None:
    ensure_warm(lambda _message: None)
    for package in ("decode", "wire"):
        shutil.copytree(SOURCES / package / "__pycache__", installed / "walrelay" / package / "__pycache__")
    closed(installed)
    found = decode(installed, HOME=str(tmp_path))
    assert found == {"place": str(installed / "walrelay" / "decode" / "__pycache__"), "found": 1, "made": 0}
    assert not (tmp_path / ".cache").exists()


def test_who_has_no_home_keeps_kernels_beside_temporary_files_which_nobody_else_may_write(
    installed: Path, tmp_path: Path
) -> None:
    closed(installed)
    found = decode(installed, HOME="/proc/nobody", TMPDIR=str(tmp_path))
    own = tmp_path / f"walrelay-{os.geteuid()}"
    assert Path(found["place"]).is_relative_to(own) and own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)  # as somebody else would have made it
    assert decode(installed, HOME="/proc/nobody", TMPDIR=str(tmp_path))["error"] == "config.no_place_for_kernels"


def test_where_nothing_can_be_written_the_error_says_what_to_set(installed: Path, tmp_path: Path) -> None:
    closed(installed)
    refused = decode(installed, HOME="/proc/nobody", TMPDIR="/proc", NUMBA_CACHE_DIR="/proc/kernels")
    assert refused["error"] == "config.no_place_for_kernels" and "NUMBA_CACHE_DIR" in refused["hint"]
    found = decode(installed, HOME="/proc/nobody", NUMBA_CACHE_DIR=str(tmp_path / "kernels"))
    assert Path(found["place"]).is_relative_to(tmp_path / "kernels")


def test_other_processors_do_not_share_kernels(installed: Path, tmp_path: Path) -> None:
    closed(installed)
    here = decode(installed, HOME=str(tmp_path))
    any_ = decode(installed, HOME=str(tmp_path), NUMBA_CPU_NAME="generic")
    assert here["place"] != any_["place"] and any_["made"] == 1
