"""One JSON line per row on standard output."""

from __future__ import annotations

import json
import math
import sys
import threading
from decimal import Decimal
from typing import Any, Self, TextIO

from walrelay.changes.batch import EventBatch
from walrelay.changes.dialect import plain_dialect
from walrelay.changes.rows import TableRows
from walrelay.decode.base import TEXT
from walrelay.destinations.base import SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.urls import refuse_rest
from walrelay.model.schema import TableSchema


class StdoutDestination(SimpleDestination):
    """`{"table": "public.orders", "op": "copy", "row": {…}}`, a line each.

    JSON has no exact decimals, bytes, infinity or dates: decimals and dates are the text Postgres prints, bytes are
    `\\x…`, NaN and ±Infinity are text. Lines of different tables do not mix within a table's copy.

    Changes come in commit order: `{"table": …, "op": "update", "commit_lsn": …, "row": {…}, "old": {…}}`; after a crash
    the last ones may come again, with the same `commit_lsn` and `ordinal`.
    """

    name = "stdout"
    capabilities = Capabilities(takes_changes=True)
    dialect = plain_dialect(TEXT)

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    @classmethod
    def from_url(cls, url: str) -> Self:
        refuse_rest(url)
        return cls()

    def shutdown(self) -> None:
        (self._stream or sys.stdout).flush()

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        stream = self._stream or sys.stdout
        table = str(schema.name)
        count = 0
        with self._lock:
            for row in rows.rows():
                line = {
                    "table": table,
                    "op": "copy",
                    "row": {key: plain(value) for key, value in row.items()},
                }
                stream.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
                count += 1
            stream.flush()
        return WriteResult(durable=True, rows=count)

    def write_events(self, batch: EventBatch) -> WriteResult:
        stream = self._stream or sys.stdout
        count = 0
        with self._lock:
            for line in batch.json_lines():
                stream.write(line + "\n")
                count += 1
            stream.flush()
        return WriteResult(durable=True, rows=count)


def plain(value: Any) -> Any:
    """A value as JSON can say it without loss."""
    match value:
        case bytes():
            return "\\x" + value.hex()
        case Decimal():
            return f"{value:f}"
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return value
