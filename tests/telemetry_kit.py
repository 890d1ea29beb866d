"""What the tests of metrics, health, events and hooks share: a pipeline's state as it would be seen, a receiver."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from walrelay.config.observability import metrics_settings
from walrelay.log.status import CaptureStatus
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.telemetry.listeners import Counting
from walrelay.telemetry.look import Look
from walrelay.workers.status import PipelineStatus, TableStatus

PATIENCE = 60.0


class Receiver:
    """A web server that remembers; `answers` are its next answers, then 204."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.held = threading.Event()
        self.held.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.held.wait(PATIENCE)
                receiver.heard.append((dict(self.headers), body))
                code = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?token=t0ken"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()


def capturing(**more: Any) -> CaptureStatus:
    """A capture that streams."""
    said: dict[str, Any] = {
        "state": "streaming", "slot": "s", "pid": 1, "at": time.time(), "durable_lsn": "0/0", "confirmed_lsn": "0/0",
        "server_lsn": "0/0", "lag_bytes": 0, "lag_seconds": 0.0, "retained_wal_bytes": 1_000, "transactions": 1,
        "rows": 1, "transactions_per_second": 0.0, "rows_per_second": 0.0, "segments": 1, "last_segment_bytes": 1,
        "open_transactions": 0, "open_transaction_bytes": 0, "large_transactions": 0, "spilled_bytes": 0,
        "memory_bytes": 0, "reconnects": 0, "last_error": None, "special_values": {},
    }  # fmt: skip
    return CaptureStatus(**{**said, **more})


def table(name: str, phase: str = "ready", code: str | None = None) -> TableStatus:
    schema, _, rest = name.partition(".")
    failed = phase == "errored"
    return TableStatus(
        TableName(schema, rest),
        phase,
        None if failed else Lsn(100),
        "it may not be read" if failed else None,
        "GRANT SELECT" if failed else None,
        code,
    )


def status(*tables: TableStatus, **more: Any) -> PipelineStatus:
    said: dict[str, Any] = {
        "position": Lsn(100), "log_end": Lsn(100), "changes": 0, "lag_seconds": 0.0, "capture": capturing(),
        "moved_at": time.monotonic(),
    }  # fmt: skip
    return PipelineStatus(tables=tables, **{**said, **more})


def look(seen: PipelineStatus | None, **more: Any) -> Look:
    """What is seen of it now."""
    said: dict[str, Any] = {
        "pipeline": "shop", "destination": "duckdb", "at": time.time(), "started_at": time.time() - 60,
        "limits": metrics_settings(), "heard": Counting().heard(),
    }  # fmt: skip
    return Look(status=seen, **{**said, **more})
