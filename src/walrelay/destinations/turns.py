"""A lock that threads get in the order in which they asked for it.

Python's own goes to whoever comes first when it is free: a thread that lets go of it and asks again at once mostly gets
it again, and others wait for as long as it does that.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A context manager. Not reentrant."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._line: deque[threading.Lock] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._line)

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._line.append(mine)
        try:
            mine.acquire()  # until whoever is before us lets go
        except BaseException:
            self._leave(mine)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._guard:
            self._next()

    def _next(self) -> None:
        if self._line:
            self._line.popleft().release()
        else:
            self._taken = False

    def _leave(self, mine: threading.Lock) -> None:
        """Somebody interrupted the wait; it may have been over just then."""
        with self._guard:
            if mine in self._line:
                self._line.remove(mine)
            else:
                self._next()
