"""Destinations that keep what has happened keep the contract of streams."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, TextIO

import pytest

from walrelay.changes.batch import EventBatch
from walrelay.changes.dialect import plain_dialect
from walrelay.changes.rows import TableRows
from walrelay.decode.base import TEXT
from walrelay.destinations.base import Destination, DestinationContext, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.stdout import StdoutDestination
from walrelay.model.schema import TableSchema

pytest.register_assert_rewrite("walrelay.testing.stream_contract", "walrelay.testing.contract")
from walrelay.testing.stream_contract import DestinationFactory, StreamContract, StreamEvent  # noqa: E402

pytestmark = pytest.mark.postgres


class JsonLinesDestination(SimpleDestination):
    """A file to which changes are appended, a line each: the smallest stream that a crash leaves alone."""

    name = "json lines"
    capabilities = Capabilities(kind="stream", takes_changes=True)
    dialect = plain_dialect(TEXT)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def startup(self, context: DestinationContext) -> None:
        self._file = self.path.open("a", encoding="utf-8")
        self._lines = StdoutDestination(self._file)

    def shutdown(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        return self._synced(self._lines.write_table_rows(schema, rows))

    def write_events(self, batch: EventBatch) -> WriteResult:
        return self._synced(self._lines.write_events(batch))

    def _synced(self, result: WriteResult) -> WriteResult:
        assert self._file is not None, "startup() comes first"
        os.fsync(self._file.fileno())
        return result


class LinesContract(StreamContract):
    def text(self, destination: Destination) -> str:
        raise NotImplementedError

    def lines(self, destination: Destination) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(destination).splitlines()]

    def events(self, destination: Destination) -> list[StreamEvent]:
        return [StreamEvent.of_line(line) for line in self.lines(destination) if line["op"] != "copy"]

    def copies(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return [line["row"] for line in self.lines(destination) if line["op"] == "copy" and line["table"] == table]


class TestJsonLinesDestination(LinesContract):
    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: JsonLinesDestination(tmp_path / "events.jsonl")

    def text(self, destination: Destination) -> str:
        assert isinstance(destination, JsonLinesDestination)
        return destination.path.read_text(encoding="utf-8")


class TestStdoutDestination(LinesContract):
    """It keeps nothing itself; whoever reads it is told what a stream tells."""

    durable = False
    test_it_says_what_it_is = None

    @pytest.fixture
    def destination_factory(self) -> DestinationFactory:
        self._printed = io.StringIO()
        return lambda: StdoutDestination(self._printed)

    def text(self, destination: Destination) -> str:
        return self._printed.getvalue()
