"""Takes a range of the change log into the database: rows, columns and the position reached, in one transaction."""

from __future__ import annotations

import itertools
from collections import Counter

from walrelay.changes.batch import EventBatch
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import Tally, Target
from walrelay.destinations.holdings import Progress, Shape
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import Connection, run
from walrelay.destinations.postgres.failures import naming
from walrelay.destinations.postgres.keyed import Held, KeyedPiece
from walrelay.destinations.postgres.loose import LoosePiece
from walrelay.destinations.postgres.piece import Fit, Piece, cut
from walrelay.destinations.postgres.places import place
from walrelay.destinations.postgres.shape import ShapeKeeper
from walrelay.destinations.postgres.stages import Stages
from walrelay.destinations.postgres.types import TargetTypes
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special, SpecialValues


class Application:
    """One batch, on a connection within a transaction, which the caller begins and commits."""

    def __init__(
        self,
        connection: Connection,
        batch: EventBatch,
        book: TargetBook,
        types: TargetTypes,
        stages: Stages,
        target: Target,
        special_values: SpecialValues,
        piece_rows: int,
    ) -> None:
        self._connection = connection
        self._batch = batch
        self._book = book
        self._keeper = ShapeKeeper(connection, book, types)
        self._stages = stages
        self._target = target
        self._special_values: SpecialValues = special_values
        self._piece_rows = piece_rows
        self._progress: dict[TableId, Progress] = {}
        self._shapes: dict[TableId, Shape] = {}
        self._keys: dict[TableId, frozenset[str]] = {}
        self.treated: dict[TableId, Counter[Special]] = {}

    def run(self) -> int:
        """Apply what is new of the batch; the number of changes taken."""
        ranges = self._batch.ranges
        self._progress = self._book.progress(None if ranges is None else [one.table for one in ranges], lock=True)
        parts = [fresh for part in self._batch.tables() if (fresh := self._what_is_new(part)) is not None]
        tables = [*(part.schema.id for part in parts), *(one.schema.id for one in self._batch.shapes)]
        self._shapes, self._keys = self._book.shapes(tables), self._book.keys(tables)
        count = 0
        for part in parts:
            with naming(part.schema):
                count += self._take_table(part)
        for shown in self._batch.shapes:
            with naming(shown.schema):
                self._follow(shown)
        self._advance([part.schema.id for part in parts])
        return count

    def _what_is_new(self, part: TableChanges) -> TableChanges | None:
        applied = self._applied(part.schema.id)
        if applied is None or applied <= part.after:
            return part
        return part.since(applied) if applied < part.to else None

    def _applied(self, table: TableId) -> Lsn | None:
        mine = self._progress.get(table)
        if mine is None and self._batch.ranges is None:
            # It was among all tables, and had no changes.
            return self._book.whole()
        return None if mine is None else mine.applied

    def _advance(self, changed: list[TableId]) -> None:
        """Record `to` for every table that takes part, also for those without changes."""
        to, ranges = self._batch.to, self._batch.ranges
        known = self._progress.keys() if ranges is None else self._progress.keys() & {one.table for one in ranges}
        self._book.advance({*known, *changed}, to)
        if ranges is None or all(one.unseen_by is None for one in ranges):
            # A table that catches up alone says nothing of the others.
            self._book.advance_whole(to)

    # ------------------------------------------------------------------------------------------------------- taking

    def _take_table(self, part: TableChanges) -> int:
        count = 0
        for _, batches in itertools.groupby(part.arrow(), key=lambda one: one.version.version):
            for pieces in cut(batches, self._piece_rows):
                version = pieces[0].version
                shape = self._follow(version)
                piece = Piece(Fit(version.schema, shape), pieces)
                self._take(piece)
                count += piece.changes
        return count

    def _take(self, piece: Piece) -> None:
        table = piece.schema.id
        if piece.is_truncated:
            # Not by TRUNCATE, which would empty the table also for those who look at an older state.
            run(self._connection, f"DELETE FROM {place(piece.shape.name)}")
        tally = Tally(self._target, self._special_values, self.treated.setdefault(table, Counter()))
        copied = self._copied(table)
        if not piece.key:
            LoosePiece(self._connection, self._stages, piece, tally, whole=copied is not None).take()
            return
        names = frozenset(piece.shape.columns[i].name for i in piece.key)
        held = Held(copied, is_unique=names == self._keys.get(table))
        KeyedPiece(self._connection, self._stages, piece, held, tally).take()

    def _copied(self, table: TableId) -> Lsn | None:
        progress = self._progress.get(table)
        return None if progress is None else progress.copied

    def _follow(self, version: SchemaVersion) -> Shape:
        table = version.schema.id
        held = self._shapes.get(table)
        shape = self._keeper.follow(held, version, whole=self._copied(table) is not None)
        if shape is not held and (held is None or held.is_behind(version)):
            self._keys[table] = frozenset(version.schema.key_columns)
        self._shapes[table] = shape
        return shape
