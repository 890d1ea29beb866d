"""What an installation makes once, when it is first used: compiled kernels, and the archive of Spark's classes.

The archive takes a JVM's start and end to make, and saves a second or two of every later start. That would be a poor
reason to let somebody wait; but kernels are compiled on one core for about a minute, and meanwhile it costs nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walrelay.decode.warm import ensure_warm, is_warm
from walrelay.spark.class_archive import archive_path

PATIENCE_SECONDS = 60.0
"""For the archive, once the kernels are there. It is done without then, and made by no later start: `python -m
walrelay.spark.class_archive` makes it at any time."""


def set_up(notify: Callable[[str], None], *, own_session: bool) -> None:
    """Compile kernels unless they are there, and say so; beside it, archive the classes for a Spark of our own."""
    if is_warm():
        return
    with _archiving(wanted=own_session and (os.cpu_count() or 1) > 1):
        ensure_warm(notify)


@contextmanager
def _archiving(*, wanted: bool) -> Iterator[None]:
    if not wanted or archive_path().exists():
        yield
        return
    command = [sys.executable, "-m", "walrelay.spark.class_archive"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as made:
        try:
            yield
            made.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            made.terminate()
        except BaseException:
            made.terminate()
            raise
