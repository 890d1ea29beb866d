"""Work that goes on while the body of a `with` runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """Run `work` in a thread; at the end it is told to stop, waited for, and what it failed with is raised."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]
