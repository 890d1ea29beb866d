"""Capture in a process of its own: `python -m walrelay.capture.child`, told what to do on standard input.

The first line of its input is the task, as JSON: secrets stay out of the process list. It ends cleanly on SIGTERM,
SIGINT, or when its input ends, which is when whoever started it has died. What it has to say goes to standard output,
a JSON object a line; a named failure is the last of them, with exit code 3.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings, failpoints_wanted
from walrelay.decode.warm import ensure_warm
from walrelay.errors import WalrelayError
from walrelay.failpoints import arm
from walrelay.model.notice import as_notice
from walrelay.postgres.source import PostgresSource

NAMED_FAILURE = 3
PATIENCE_SECONDS = 10.0
"""For a clean end when nobody is left to wait for it: what waits on the server may wait for ever."""


def main() -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    arm(failpoints_wanted())
    task: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        ensure_warm(_tell)
        capture = Capture(
            PostgresSource(task["url"], publication=task["publication"]),
            slot=task["slot"],
            log=task["log"],
            settings=capture_settings(**task["settings"]),
            notify=_tell,
        )
        _stop_on_signals(capture)
        threading.Thread(target=_stop_when_orphaned, args=(capture,), daemon=True).start()
        capture.run(task["until"])
    except WalrelayError as error:
        _say(error=error.to_text())
        return NAMED_FAILURE
    return 0


def _stop_on_signals(capture: Capture) -> None:
    def stop(number: int, _frame: object) -> None:
        # The first asks, the second does not.
        signal.signal(number, signal.SIG_DFL)
        capture.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _stop_when_orphaned(capture: Capture) -> None:
    # Not through sys.stdin: its lock must not be held when the interpreter ends.
    while os.read(0, 1024):
        pass
    capture.stop()
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


def _say(**what: object) -> None:
    with suppress(BrokenPipeError):  # nobody is left to hear it, and we end soon
        sys.stdout.write(json.dumps(what, default=str) + "\n")
        sys.stdout.flush()


def _tell(message: str) -> None:
    said = as_notice(message)
    _say(notice=str(said), event=said.event, fields=said.fields, weight=said.weight)


if __name__ == "__main__":
    sys.exit(main())
