"""What capture is doing, in numbers: for logs, for `capture.status()`, for commands that look from outside."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from walrelay.log.manifest import Entry
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn

STATUS = "status.json"
STREAMING = "streaming"
SILENT_SECONDS = 10.0
"""A capture that has not written its status for so long is not running."""
RATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """One look. Times are seconds, sizes bytes; `None` is not known yet."""

    state: str
    """starting, streaming, waiting (for the server), stopped."""
    slot: str
    pid: int
    at: float
    """When this was true, seconds since 1970."""
    durable_lsn: str
    confirmed_lsn: str
    server_lsn: str
    """The server's end of WAL as it last told us."""
    lag_bytes: int
    """Between the server's end of WAL and what the log holds durably."""
    lag_seconds: float
    """Age of the oldest change that is received but not yet readable; 0 when there is none."""
    retained_wal_bytes: int | None
    """WAL the server keeps back for the slot."""
    transactions: int
    rows: int
    transactions_per_second: float
    rows_per_second: float
    segments: int
    last_segment_bytes: int
    open_transactions: int
    open_transaction_bytes: int
    large_transactions: int
    """Committed ones that came in parts, on this connection."""
    spilled_bytes: int
    """Of open transactions, written to disk on this connection."""
    memory_bytes: int
    """Held in open transactions, queued pieces and the open segment."""
    reconnects: int
    last_error: str | None
    special_values: dict[str, dict[str, int]]
    since: float = 0.0
    """When the state began, seconds since 1970."""
    wal_status: str | None = None
    """The slot's, as Postgres says it: reserved, extended, unreserved, lost."""
    safe_wal_bytes: int | None = None
    """So much more WAL may be written until Postgres may remove what the slot needs; None where there is no such
    limit."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_status(storage: Storage) -> CaptureStatus | None:
    """What a capture, perhaps of another process, last wrote down; look at `at` and `state`. None also while it is
    being written, where a store does not replace a file at once."""
    try:
        body: dict[str, Any] = json.loads(storage.read(STATUS))
        known = {name: value for name, value in body.items() if name in CaptureStatus.__dataclass_fields__}
        return CaptureStatus(**known)
    except (FileNotFoundError, ValueError, TypeError):
        return None


class Counters:
    """Counts published segments; rates over the last seconds."""

    def __init__(self) -> None:
        self.transactions = self.rows = self.segments = self.last_segment_bytes = 0
        self._recent: deque[tuple[float, int, int]] = deque()

    def published(self, entry: Entry) -> None:
        self.transactions += entry.transactions
        self.rows += entry.rows
        self.segments += 1
        self.last_segment_bytes = entry.bytes
        self._recent.append((time.monotonic(), entry.transactions, entry.rows))

    def rates(self) -> tuple[float, float]:
        """Transactions and rows a second."""
        since = time.monotonic() - RATE_SECONDS
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
        recent = tuple(self._recent)
        return sum(one[1] for one in recent) / RATE_SECONDS, sum(one[2] for one in recent) / RATE_SECONDS


def behind(server: int, durable: Lsn) -> int:
    return max(0, server - durable)
