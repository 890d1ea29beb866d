"""Named places between two steps, where a test can make the process die, fail or wait. Off they cost one look.

The names are the contract of the crash tests (SEMANTICS 23); `walrelay.testing.failpoints` arms them.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from walrelay.errors import WalrelayError

NAMES: Final = frozenset(
    {
        "slot.before_create",
        "slot.after_create",
        "spill.write",
        "segment.before_publish",
        "segment.files_durable",
        "segment.after_publish",
        "head.before_advance",
        "ack.before",
        "ack.after",
        "compaction.before_publish",
        "compaction.after_publish",
        "events.before_write",
        "events.after_write",
        "destination.before_commit",
        "destination.committed",
        "destination.ddl",
        "destination.piece",
        "destination.staged",
        "progress.before_record",
        "progress.after_record",
        "copy.during",
        "copy.after_finished",
        "catchup.before",
        "catchup.after",
    }
)
_armed: dict[str, str] = {}
_passed: dict[str, int] = {}


def hit(name: str) -> None:
    """Do what this place is armed for, if it is."""
    if _armed:
        _act(name)


def arm(what: str) -> None:
    """Arm places: `name=action[,name=action]`. Actions: `kill` (SIGKILL), `kill:N` at the N-th pass, `fail` (raise),
    `fail:N` for the first N passes, `sleep:SECONDS`, `stop:FILE` (SIGSTOP at the next pass after somebody has written
    the place's name to FILE, which is then gone: he looks around and lets it go on with SIGCONT)."""
    for pair in filter(None, what.split(",")):
        name, _, action = pair.partition("=")
        if name not in NAMES:
            raise ValueError(f"no such failpoint: {name}")
        _armed[name] = action or "kill"


def disarm() -> None:
    _armed.clear()
    _passed.clear()


def _act(name: str) -> None:
    action = _armed.get(name)
    if action is None:
        return
    _passed[name] = passed = _passed.get(name, 0) + 1
    kind, _, argument = action.partition(":")
    if kind == "kill" and passed >= int(argument or 1):
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "fail" and passed <= int(argument or 1_000_000_000):
        raise FailpointError(f"the failpoint {name} is armed")
    elif kind == "sleep":
        time.sleep(float(argument))
    elif kind == "stop" and _is_wanted(Path(argument), name):
        os.kill(os.getpid(), signal.SIGSTOP)


def _is_wanted(order: Path, name: str) -> bool:
    """Whether this is the place to stop at. Removing the order is what one thread alone can do."""
    try:
        if order.read_text() != name:
            return False
        order.unlink()
    except FileNotFoundError:
        return False
    return True


class FailpointError(WalrelayError):
    code = "testing.failpoint"
    default_hint = "A test has armed this place; nothing is wrong."
    retryable = True
