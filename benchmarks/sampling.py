"""Peak memory of the processes that do a piece of work, looked at every 50 ms."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self

import psutil

INTERVAL_SECONDS = 0.05


class Role(StrEnum):
    """What a process of our tree is to the measurement."""

    DRIVER = "driver"
    """This Python process, which also holds an embedded destination."""
    JVM = "jvm"
    WORKER = "worker"
    """Spark's Python workers, and the process they are forked from."""
    COMMAND = "command"
    """A program that was started for the measurement: psql, a peer."""


@dataclass
class MemoryPeak:
    """Largest values seen, in bytes.

    Sums share common pages out among the processes that use them (PSS) where the system says so; a single worker is
    given as what it has resident (RSS), shared pages and all.
    """

    total: int = 0
    by_role: dict[Role, int] = field(default_factory=lambda: defaultdict(int))
    workers: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """RSS of each worker process, by process id."""
    samples: int = 0

    @property
    def largest_worker(self) -> int:
        return max(self.workers.values(), default=0)


class MemorySampler:
    """Samples, while it is entered, the processes below this one that have one of `roles`.

    The tree of `server_pid` (Postgres) is left out. Looking at a large process takes milliseconds: do not measure
    time and memory in the same run.
    """

    def __init__(self, roles: frozenset[Role], server_pid: int) -> None:
        self._roles = roles
        self._server_pid = server_pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-sampler", daemon=True)
        self.peak = MemoryPeak()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._look()
            if self._stop.wait(INTERVAL_SECONDS):
                return

    def _look(self) -> None:
        sums: defaultdict[Role, int] = defaultdict(int)
        for process, role in roles_below(os.getpid(), self._server_pid):
            if role not in self._roles:
                continue
            share, resident = _memory(process)
            sums[role] += share
            if role is Role.WORKER:
                self.peak.workers[process.pid] = max(self.peak.workers[process.pid], resident)
        for role, size in sums.items():
            self.peak.by_role[role] = max(self.peak.by_role[role], size)
        self.peak.total = max(self.peak.total, sum(sums.values()))
        self.peak.samples += 1


def roles_below(root_pid: int, server_pid: int) -> Iterator[tuple[psutil.Process, Role]]:
    """The process `root_pid` and all below it with their roles; the tree of `server_pid` is left out."""
    below: defaultdict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter(["ppid", "name"]):
        below[process.info["ppid"]].append(process)
    yield psutil.Process(root_pid), Role.DRIVER
    pending = [(child, Role.COMMAND) for child in below[root_pid] if child.pid != server_pid]
    while pending:
        process, role = pending.pop()
        if role is Role.COMMAND and process.info["name"] == "java":
            role = Role.JVM
        yield process, role
        pending += [(child, Role.WORKER if role is Role.JVM else role) for child in below[process.pid]]


def _memory(process: psutil.Process) -> tuple[int, int]:
    """(its share, what it has resident); nothing once it has ended."""
    try:
        seen = process.memory_full_info()
    except psutil.AccessDenied:
        resident = int(process.memory_info().rss)
        return resident, resident
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return 0, 0
    return int(getattr(seen, "pss", seen.uss)), int(seen.rss)
