"""How a command ends when it is told to: in order, and if that takes too long at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walrelay.model.notice import Notice

LIMIT_SECONDS = 9.0
"""For an end in order. Service managers wait ten seconds and more, then they kill."""


class Stop:
    """What was asked for."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """As a shell would put it."""
        return 0 if self.signal is None else 128 + self.signal


@contextmanager
def graceful_stop(stop: Callable[[], None], say: Callable[[str], None], limit: float = LIMIT_SECONDS) -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks for an end, the second one ends. So does the limit, whatever is being waited
    for: a process that is killed loses nothing, and its helpers end when it does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    state, ended = Stop(), threading.Event()

    def watch() -> None:
        if not ended.wait(limit):
            said = f"no end in {limit:.0f} s, so it stops at once; nothing is lost, the next run goes on from here"
            say(Notice.warning("stopping at once", said, after_seconds=limit))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def asked(number: int, _frame: object) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        state.signal = number
        threading.Thread(target=watch, name="walrelay-stopping", daemon=True).start()
        say(Notice("stopping", "stopping; once more to stop at once"))
        stop()

    for number in before:
        signal.signal(number, asked)
    try:
        yield state
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)
