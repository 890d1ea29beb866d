"""How much memory the processes of a pipeline hold: the driver, Spark's JVM, capture, and Spark's Python workers."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_of(capture: int | None) -> dict[str, int]:
    """Resident bytes by kind of process, of this one and its descendants; empty where the system does not tell. Pages
    that processes share are counted with each of them."""
    if not _PROC.joinpath("self/statm").exists():
        return {}
    found: Counter[str] = Counter(driver=_resident(os.getpid()))
    for process in _descendants(os.getpid()):
        found[_kind(process, capture)] += _resident(process)
    return dict(found)


def _kind(process: int, capture: int | None) -> str:
    if process == capture:
        return "capture"
    with suppress(OSError):
        if _PROC.joinpath(str(process), "comm").read_text().strip() == "java":
            return "jvm"
    return "workers"


def _resident(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_PROC.joinpath(str(process), "statm").read_text().split()[1]) * _PAGE
    return 0  # it has ended meanwhile


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    for children in _PROC.joinpath(str(process), "task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found
