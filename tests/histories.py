"""A log written by hand, with what Postgres would send of random histories."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.decode.changes import OPTIONAL, change_schema
from walrelay.log.identity import write_lineage
from walrelay.log.manifest import DataFile, Entry, Manifest, data_path
from walrelay.log.reader import LogReader
from walrelay.log.schemas import schema_path
from walrelay.log.storage import LocalStorage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.model.schema_json import version_to_json

Row = dict[str, Any]
INT4, INT8, TEXT = PgType(23, "int4"), PgType(20, "int8"), PgType(25, "text")
FLOAT8, INTERVAL = PgType(701, "float8"), PgType(1186, "interval")
MONTH, DAYS = ({"months": m, "days": d, "microseconds": 0} for m, d in ((1, 0), (0, 30)))
HOURS = {"months": 0, "days": 0, "microseconds": 30 * 86_400_000_000}


@dataclass
class SmallLog:
    """A log written by hand: transactions of some tables, put into segments."""

    root: Path
    lsn: int = 1000
    xid: int = 700
    entries: list[Entry] = field(default_factory=list)
    open: list[tuple[SchemaVersion, Row]] = field(default_factory=list)
    ends: list[Lsn] = field(default_factory=list)
    versions: dict[tuple[int, int], SchemaVersion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.storage = LocalStorage(self.root)
        write_lineage(self.storage, Lineage("slot", "1", 1, Lsn(self.lsn)))
        self.start = Lsn(self.lsn)

    def commit(self, changes: list[tuple[TableSchema, int, Row]]) -> Lsn:
        """One transaction; each change is (shape, number of that shape, its own columns)."""
        self.lsn += 64
        self.xid += 1
        for ordinal, (schema, number, change) in enumerate(changes):
            key = (schema.id, number)
            if key not in self.versions:
                self.versions[key] = SchemaVersion(schema, number, Lsn(self.lsn))
                body = {**version_to_json(self.versions[key]), "fingerprint": "x"}
                self.storage.put(schema_path(*key), json.dumps(body).encode())
            positions = {"commit_lsn": self.lsn, "end_lsn": self.lsn + 8, "ordinal": ordinal, "xid": self.xid}
            rest = {"commit_time": 0, "schema_version": number, "row": None, "old": None, "old_kind": None}
            self.open.append((self.versions[key], {**positions, **rest, "unchanged": None, **change}))
        self.ends.append(Lsn(self.lsn + 8))
        return self.ends[-1]

    def close_segment(self) -> None:
        """Publish what was committed since the last segment."""
        sequence = len(self.entries) + 1
        groups: dict[tuple[int, int], list[Row]] = {}
        for version, change in self.open:
            groups.setdefault((version.schema.id, version.version), []).append(change)
        files = tuple(self._write(sequence, self.versions[key], changes) for key, changes in groups.items())
        entry = Entry(
            first=sequence,
            last=sequence,
            start_lsn=self.entries[-1].end_lsn if self.entries else self.start,
            end_lsn=self.ends[-1],
            transactions=1,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            commit_time=0,
            created_at=0.0,
            files=files,
        )
        Manifest(self.storage).publish(entry)
        self.entries.append(entry)
        self.open.clear()

    def _write(self, sequence: int, version: SchemaVersion, changes: list[Row]) -> DataFile:
        schema = version.schema
        full = change_schema(schema)
        absent = [name for name in OPTIONAL if all(change[name] is None for change in changes)]
        fields = [f for f in full if f.name not in absent]
        table = pa.table(
            [pa.array([change[f.name] for change in changes], _plain(f.type)).cast(f.type) for f in fields],
            schema=pa.schema(fields),
        )
        path = data_path(sequence, sequence, 1, schema.id, version.version)
        target = Path(self.storage.location(path))
        target.parent.mkdir(exist_ok=True)
        pq.write_table(table, target, compression="none", store_schema=False)
        first, last = (Lsn(changes[place]["commit_lsn"]) for place in (0, -1))
        size = target.stat().st_size
        return DataFile(path, schema.id, str(schema.name), version.version, len(changes), size, first, last)

    def batch(self, after: Lsn | None = None, to: Lsn | None = None, *ranges: TableRange) -> EventBatch:
        low, high = self.start if after is None else after, self.ends[-1] if to is None else to
        return EventBatch(LogReader(self.root), low, high, ranges or None)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@dataclass
class Source:
    """A table in Postgres, and what it would send of its changes. Toasted values are those that begin with T."""

    schema: TableSchema
    rng: random.Random
    rows: list[Row] = field(default_factory=list)
    number: int = 1
    next_key: int = 1
    next_attnum: int = 100
    sent: list[tuple[TableSchema, int, Row]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, ...]:
        if self.schema.identity == "full":
            return self.schema.primary_key
        return self.schema.identity_columns

    def value(self, column: Column) -> Any:
        rng = self.rng
        if column.name == "id":
            self.next_key += rng.randint(1, 2)
            taken = {row["id"] for row in self.rows}
            reuse = rng.randint(1, self.next_key)
            return reuse if reuse not in taken else self.next_key + 1_000_000 * (self.next_key in taken)
        if column.type == INTERVAL:
            return copy.copy(rng.choice([MONTH, DAYS, HOURS, None]))
        if column.type == FLOAT8:
            return rng.choice([0.0, -0.0, 1.5, float("nan"), None])
        if column.type == TEXT:
            return rng.choice([None, "short", f"T{rng.randint(0, 3)}", f"T{rng.randint(0, 10**6)}"])
        return rng.choice([None, 0, 1, 2])

    def put(self, op: str, change: Row) -> None:
        self.sent.append((self.schema, self.number, {"op": op, **change}))

    def step(self) -> None:
        """One change, drawn."""
        draw = self.rng.random()
        can_name = self.schema.identity == "full" or bool(self.key)
        if draw < 0.02:
            self.rows.clear()
            self.put("truncate", {})
        elif draw < 0.45 or not self.rows or not can_name:
            row = {column.name: self.value(column) for column in self.schema.columns}
            self.rows.append(row)
            self.put("insert", {"row": copy.deepcopy(row)})
        elif draw < 0.6:
            row = self.rows.pop(self.rng.randrange(len(self.rows)))
            self.put("delete", self.old(row, None))
        else:
            self.update(self.rng.randrange(len(self.rows)))

    def update(self, place: int) -> None:
        row = self.rows[place]
        new = copy.deepcopy(row)
        for column in self.schema.columns:
            if column.name != "id" and self.rng.random() < 0.4:
                new[column.name] = self.value(column)
        if self.key and self.rng.random() < 0.25:
            new["id"] = self.value(self.schema.column("id"))
        self.rows[place] = new
        image, unchanged = copy.deepcopy(new), []
        for column in self.schema.columns:
            kept = new[column.name]
            if isinstance(kept, str) and kept.startswith("T") and kept == row[column.name]:
                image[column.name] = None
                unchanged.append(column.name)
        self.put("update", {"row": image, "unchanged": unchanged or None, **self.old(row, new)})

    def old(self, row: Row, new: Row | None) -> Row:
        if self.schema.identity == "full":
            return {"old": copy.deepcopy(row), "old_kind": "row"}
        if new is not None and all(row[name] == new[name] for name in self.key):
            return {}
        return {"old": {name: row[name] if name in self.key else None for name in row}, "old_kind": "key"}

    def alter(self) -> None:
        """Change the columns, as ALTER TABLE does; toasted values move along."""
        columns = list(self.schema.columns)
        extras = [place for place, column in enumerate(columns) if column.name.startswith("x")]
        kind = self.rng.choice(["add", "drop", "rename", "widen"])
        if kind == "add" or not extras:
            self.next_attnum += 1
            column = Column(f"x{self.next_attnum}", self.rng.choice([INT4, TEXT]), attnum=self.next_attnum)
            columns.append(column)
            for row in self.rows:
                row[column.name] = None
        else:
            place = self.rng.choice(extras)
            column = columns[place]
            if kind == "drop":
                del columns[place]
                for row in self.rows:
                    del row[column.name]
            elif kind == "rename":
                columns[place] = replace(column, name=f"x{self.rng.randint(0, 10**9)}")
                for row in self.rows:
                    row[columns[place].name] = row.pop(column.name)
            elif column.type == INT4:
                columns[place] = replace(column, type=INT8)
        identity = tuple(c.name for c in columns) if self.schema.identity == "full" else self.schema.identity_columns
        schema = replace(self.schema, columns=tuple(columns), identity_columns=identity)
        if schema != self.schema:
            self.schema = schema
            self.number += 1


def shape(identity: str, *, key: bool, intervals: bool = False, id_: int = 5001, name: str = "t") -> TableSchema:
    columns = [Column("id", INT8, attnum=1), Column("a", INT4, attnum=2), Column("Body", TEXT, attnum=3)]
    columns += [Column("f", FLOAT8, attnum=4), Column("note", TEXT, attnum=5)]
    if intervals:
        columns.append(Column("took", INTERVAL, attnum=6))
    names = tuple(column.name for column in columns)
    marked = {"full": names, "nothing": ()}.get(identity, ("id",) if key else ())
    primary = ("id",) if key and identity != "index" else ()
    table = TableName("odd schema", name)
    return TableSchema(id_, table, tuple(columns), primary, identity=identity, identity_columns=marked)  # type: ignore[arg-type]


TABLES = {
    "primary key": {"identity": "default", "key": True},
    "index": {"identity": "index", "key": True},
    "full with key": {"identity": "full", "key": True},
    "full without key": {"identity": "full", "key": False},
    "nothing": {"identity": "nothing", "key": False},
}


State = tuple[TableSchema, list[Row], int]
"""A table's shape, its rows, and the number of the shape."""


def write_history(kind: str, rng: random.Random, log: SmallLog, rounds: int = 50) -> dict[Lsn, list[State]]:
    """Two tables of the kind, one with intervals, changed at random; what they hold after each commit."""
    sources = [
        Source(shape(**TABLES[kind]), rng),
        Source(shape(**TABLES[kind], intervals=True, id_=5002, name="timed"), rng),
    ]
    states: dict[Lsn, list[State]] = {}
    for _ in range(rounds):
        for source in sources:
            for _ in range(rng.choice([0, 1, 2, 8])):
                source.step()
            if rng.random() < 0.04:
                source.alter()
        sent = [change for source in sources for change in source.sent]
        rng.shuffle(sources)
        for source in sources:
            source.sent.clear()
        if not sent:
            continue
        end = log.commit(sent)
        states[end] = [(s.schema, copy.deepcopy(s.rows), s.number) for s in sources]
        if rng.random() < 0.3:
            log.close_segment()
    log.commit([(s.schema, s.number, {"op": "insert", "row": row}) for s in sources for row in [whole_row(s)]])
    for source in sources:
        source.rows.append(whole_row(source))
    states[log.ends[-1]] = [(s.schema, copy.deepcopy(s.rows), s.number) for s in sources]
    log.close_segment()
    return states


def whole_row(source: Source) -> Row:
    return {column.name: 77_000_000 if column.name == "id" else None for column in source.schema.columns}
