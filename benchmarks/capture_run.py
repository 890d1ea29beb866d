"""One capture in a process of its own, timed from inside: `python -m benchmarks.capture_run '{"url": …}'`.

Prints seconds, CPU seconds and peak memory of the capture itself, without the interpreter's start and its imports.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.decode.warm import ensure_warm
from walrelay.postgres.source import PostgresSource


def main(task: dict[str, Any]) -> None:
    ensure_warm(lambda _message: None)
    capture = Capture(
        PostgresSource(task["url"], publication=task["publication"]),
        slot=task["slot"],
        log=task["log"],
        settings=capture_settings(**task.get("settings", {})),
    )
    cpu, begun = time.process_time(), time.monotonic()
    capture.run(until="caught-up")
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    status = capture.status()
    json.dump(
        {
            "seconds": seconds,
            "cpu": used,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "rows": status.rows,
            "transactions": status.transactions,
            "segments": status.segments,
            "spilled_bytes": status.spilled_bytes,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
