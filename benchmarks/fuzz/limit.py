"""A limit on processor time, so that a case which never ends is a failure and not the end of the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class EndlessError(AssertionError):
    """Still busy when the time was up."""


@contextmanager
def processor_limit(seconds: float) -> Iterator[None]:
    """Raise `EndlessError` inside when it takes so much processor time. Cannot interrupt a compiled kernel, nor a wait;
    the guard of the fuzz run does that. Works in the main thread only, elsewhere it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise EndlessError(f"still busy after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
