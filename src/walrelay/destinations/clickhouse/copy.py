"""A table's landed copy into a table that no reader sees yet: files side by side, as they are where ClickHouse reads
them so, else through Arrow, column by column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.rows import LandedFile, TableRows
from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import declared
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.destinations.clickhouse.incoming import structure
from walrelay.destinations.clickhouse.layout import DELETED, ROW, SIGN, VERSION, definitions, names, row_hash
from walrelay.destinations.clickhouse.load import send
from walrelay.destinations.clickhouse.values import Fit, Years, is_held, mark, must_be_looked_at, takes_as_landed
from walrelay.errors import DestinationError, StoppedError
from walrelay.model.special import Special, SpecialValues

SIDE_BY_SIDE = 4
"""Files that are sent at the same time."""
FILE_ROWS = 1 << 40
"""More than a file has: where there is no key, the places of a file's rows begin at a multiple of this."""
READ_ROWS = 65_536
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDINAL = "ordinal"


class TableCopy:
    """Of one table; values that ClickHouse cannot hold are treated by policy and counted."""

    def __init__(
        self,
        server: Server,
        facts: Facts,
        rows: TableRows,
        years: Years,
        special_values: SpecialValues,
        stopping: Event,
    ) -> None:
        self._server = server
        self._facts = facts
        self._rows = rows
        self._years = years
        self._special_values: SpecialValues = special_values
        self._stopping = stopping
        self._doing = f"copying {rows.schema.name}"

    def run(self) -> Counter[Special]:
        with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="walrelay-clickhouse") as pool:
            futures = [pool.submit(self._take, number, file) for number, file in enumerate(self._rows.files)]
        treated = sum((one.result() for one in futures), Counter[Special]())
        question = f"SELECT count() FROM {self._server.place(self._facts.storage)}"
        count = self._server.value(question, doing=self._doing)
        if count != self._rows.rows_total:
            raise DestinationError(
                f"{self._rows.schema.name} took {count} of {self._rows.rows_total} rows",
                hint="Nothing of this copy was kept. `walrelay resync` copies the table again.",
            )
        return treated

    def _take(self, number: int, file: LandedFile) -> Counter[Special]:
        if self._stopping.is_set():
            raise StoppedError(f"the pipeline was stopped while {self._rows.schema.name} was copied")
        if not file.rows:
            return Counter()
        if self._is_taken_as_landed(file):
            self._take_file(number, file)
            return Counter()
        return self._take_arrow(number, file)

    def _is_taken_as_landed(self, file: LandedFile) -> bool:
        columns = self._rows.schema.columns
        if not all(takes_as_landed(one) and _PLAIN.match(one.name) for one in columns):
            return False
        names_ = [one.name for one in columns if must_be_looked_at(one)]
        looked = pq.read_table(file.path, columns=names_).columns if names_ else ()
        return all(is_held(one, self._years) for one in looked)

    def _take_file(self, number: int, file: LandedFile) -> None:
        """Under the names that its columns have at the source."""
        facts = self._facts
        kinds = [f"{one.held.name} {declared(one.held.type, of_key=one.name in facts.key)}" for one in facts.columns]
        shown = ", ".join(
            f"{one.held.name} AS {one.name}" + (f", false AS {one.mark}" if one.marked else "") for one in facts.columns
        )
        own = self._own(f"{number * FILE_ROWS} + rowNumberInAllBlocks()")
        inner = f"(SELECT {shown} FROM {structure(*kinds)})"
        into = f"{self._target()} SELECT {', '.join(names(facts))}, {own} FROM {inner}"
        self._server.insert_file(into, Path(file.path), {}, self._doing)

    def _take_arrow(self, number: int, file: LandedFile) -> Counter[Special]:
        fit = Fit(self._years, self._special_values)
        kinds = [*definitions(self._facts), f"{_ORDINAL} UInt64"]
        into = (
            f"{self._target()} SELECT {', '.join(names(self._facts))}, {self._own(_ORDINAL)} FROM {structure(*kinds)}"
        )
        send(self._server, into, self._batches(number, file, fit), {}, self._doing)
        return fit.treated

    def _batches(self, number: int, file: LandedFile, fit: Fit) -> Iterator[pa.RecordBatch]:
        schema, first = self._rows.schema, number * FILE_ROWS
        with pq.ParquetFile(file.path) as parquet:
            for batch in parquet.iter_batches(READ_ROWS):
                made: dict[str, pa.Array] = {}
                for stored, column in zip(self._facts.columns, schema.columns, strict=True):
                    made[stored.name] = fit.column(batch.column(column.name), column, schema)
                    if stored.marked:
                        made[stored.mark] = mark(made[stored.name])
                made[_ORDINAL] = pa.array(range(first, first + batch.num_rows), pa.uint64())
                first += batch.num_rows
                yield pa.RecordBatch.from_pydict(made)

    def _target(self) -> str:
        own = [VERSION, DELETED] if self._facts.key else [ROW, VERSION, SIGN]
        return f"{self._server.place(self._facts.storage)} ({', '.join([*names(self._facts), *own])})"

    def _own(self, ordinal: str) -> str:
        """Before every change: at the position 0. Where there is no key, each row at a place of its own."""
        return "0, 0" if self._facts.key else f"{row_hash(self._facts)}, toUInt128({ordinal}), 1"
