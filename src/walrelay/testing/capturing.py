"""Capture beside a test: in a thread, and what goes wrong there is not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.capture.capture import Capture


@contextmanager
def capturing(capture: Capture) -> Iterator[Capture]:
    """Runs inside the block and is ended cleanly after it; raises what ended it before."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            capture.run()
        except BaseException as error:  # raised below, in the thread that can tell somebody
            failures.append(error)

    thread = threading.Thread(target=run, name="capture under test")
    thread.start()
    try:
        yield capture
    finally:
        capture.stop()
        thread.join()
    if failures:
        raise failures[0]
