"""Takes a range of the change log into a DuckDB file: rows, columns and the position reached, in one transaction."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.changes.refusals import identity_hint, unnamed_rows, unsent_values
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import Tally
from walrelay.decode.retarget import differs, retarget_struct
from walrelay.destinations.duckdb.collapse import HELD, LAST, LINKS, TEMPORARY, Run
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.destinations.duckdb.landed import Landed, relation
from walrelay.destinations.duckdb.progress import WHOLE, ProgressBook, names_of_all, place, whole
from walrelay.destinations.duckdb.shape import ShapeKeeper
from walrelay.destinations.duckdb.survey import SURVEY, Survey, literal
from walrelay.destinations.holdings import Progress, Shape, Writer
from walrelay.errors import (
    DestinationError,
    MissingRowError,
    SpecialValueError,
    UnnamedRowError,
    WalrelayError,
)
from walrelay.log.manifest import DataFile
from walrelay.log.reader import TableBatch, reading_schema
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import Special, SpecialValues
from walrelay.model.visibility import unseen_sql

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SMALL_ROWS = 20_000
"""Files with no more changes than this are read by pyarrow: it opens a file sooner than DuckDB does."""
SOURCE, STREAM = "_walrelay_source", "_walrelay_stream"
_COLUMNS = ("commit_lsn", "end_lsn", "ordinal", "xid", "op", "row", "old", "old_kind", "unchanged")


class Application:
    """One batch, on a connection whose catalog `catalog` is the file. The caller begins and commits."""

    def __init__(
        self,
        connection: DuckDBPyConnection,
        catalog: str,
        batch: EventBatch,
        special_values: SpecialValues,
        writer: Writer | None = None,
        landed: Landed | None = None,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._batch = batch
        self._special_values: SpecialValues = special_values
        self._book = ProgressBook(connection, catalog, writer)
        self._keeper = ShapeKeeper(connection, catalog, self._book)
        self._progress: dict[TableId, Progress] = {}
        self._shapes: dict[TableId, Shape] = {}
        self._landed = landed or Landed()
        self.treated: dict[TableId, Counter[Special]] = dict(self._landed.treated)
        """Values that DuckDB cannot hold, treated by policy."""

    def news(self) -> tuple[list[TableChanges], dict[TableId, Shape]]:
        """What is new of the batch, and what the tables look like now."""
        ranges = self._batch.ranges
        self._progress = self._book.all(None if ranges is None else [one.table for one in ranges])
        parts = [fresh for part in self._batch.tables() if (fresh := self._what_is_new(part)) is not None]
        self._shapes = self._book.shapes(
            [*(part.schema.id for part in parts), *(one.schema.id for one in self._batch.shapes)]
        )
        return parts, self._shapes

    def run(self) -> int:
        """Apply what is new of the batch; the number of changes taken."""
        parts, _ = self.news()
        count = 0
        small = self._small(parts)
        for part in parts:
            with _naming(part.schema):
                for version, source, survey in self._sources(part, small):
                    taken = self._take(version, source, survey)
                    count += self._landed.changes.get((part.schema.id, version.version), taken)
        for shown in self._batch.shapes:
            with _naming(shown.schema):
                self._follow(shown)
        self._advance({part.schema.id: str(part.schema.name) for part in parts})
        return count

    def _what_is_new(self, part: TableChanges) -> TableChanges | None:
        applied = self._applied(part.schema.id)
        if applied is None or applied <= part.after:
            return part
        return replace(part, after=applied) if applied < part.to else None

    def _applied(self, table: TableId) -> Lsn | None:
        mine = self._progress.get(table)
        if mine is None and self._batch.ranges is None:
            # It was among all tables, and had no changes.
            return whole(self._progress)
        return None if mine is None else mine.applied

    def _advance(self, names: dict[TableId, str]) -> None:
        """Record `to` for every table that takes part, also for those without changes."""
        to, ranges = self._batch.to, self._batch.ranges
        known = self._progress.keys() - {WHOLE} if ranges is None else {one.table for one in ranges}
        names = {**dict.fromkeys(known & self._progress.keys(), ""), **names}
        if ranges is None or all(one.unseen_by is None for one in ranges):
            # A table that catches up alone says nothing of the others.
            names = names_of_all(names)
        behind = {
            table: name
            for table, name in names.items()
            if table not in self._progress or (self._progress[table].applied or Lsn(0)) < to
        }
        self._book.advance(behind, self._progress, to)

    # ------------------------------------------------------------------------------------------------------ sources

    def _small(self, parts: list[TableChanges]) -> dict[tuple[TableId, int], list[pa.RecordBatch]]:
        """The changes of those tables that have few, by table and schema version."""
        few = [part for part in parts if sum(file.rows for _, file in part.files) <= SMALL_ROWS]
        few = [part for part in few if part.schema.id not in {table for table, _ in self._landed.runs}]
        found: dict[tuple[TableId, int], list[pa.RecordBatch]] = {
            (part.schema.id, version.version): [] for part in few for version, _ in part.files
        }
        if few:
            for one in self._of(few).batches():
                found[one.version.schema.id, one.version.version].append(self._retargeted(one.version, one.batch))
        return found

    def _of(self, parts: Iterable[TableChanges]) -> EventBatch:
        ranges = tuple(TableRange(part.schema.id, part.after, part.unseen_by) for part in parts)
        return replace(self._batch, ranges=ranges)

    def _sources(
        self, part: TableChanges, small: dict[tuple[TableId, int], list[pa.RecordBatch]]
    ) -> Iterator[tuple[SchemaVersion, str, Survey | None]]:
        """For each run of changes in one schema version, in order: the version, a relation that holds them, and what is
        in it, if that is known."""
        runs = itertools.groupby(part.files, key=lambda pair: pair[0].version)
        if all((part.schema.id, version.version) in self._landed.runs for version, _ in part.files):
            for number, files in runs:
                version = next(files)[0]
                yield version, relation(self._landed.runs[part.schema.id, number], version.schema), None
        elif (part.schema.id, part.files[0][0].version) in small:
            for number, files in runs:
                version = next(files)[0]
                batches = small[part.schema.id, number]
                if batches:
                    table = pa.Table.from_batches(batches, reading_schema(version.schema))
                    with self._registered(STREAM, table):
                        yield version, STREAM, Survey.of(table)
        elif not self._batch.log.storage.local or any(_differs(version.schema) for version, _ in part.files):
            yield from self._streamed(part)
        else:
            for _, files in runs:
                pairs = list(files)
                yield pairs[0][0], self._scan(part, [file for _, file in pairs]), None

    def _streamed(self, part: TableChanges) -> Iterator[tuple[SchemaVersion, str, Survey | None]]:
        """Through pyarrow, a batch at a time: from object stores, and for types whose special values need treatment."""
        batches = self._of([part]).batches()
        failures: list[WalrelayError] = []
        for _, group in itertools.groupby(batches, key=lambda one: one.version.version):
            version, arrow = self._arrow(group, failures)
            stream = pa.RecordBatchReader.from_batches(reading_schema(version.schema), arrow)
            # DuckDB's tables have no rows without columns; nobody asks for what is in them.
            chosen = "*" if version.schema.columns else '* EXCLUDE ("row", "old")'
            with self._registered(STREAM, stream), _own_words(failures):
                self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {SOURCE} AS SELECT {chosen} FROM {STREAM}")
            yield version, SOURCE, None
            self._connection.execute(f"DROP TABLE {SOURCE}")

    def _arrow(
        self, batches: Iterator[TableBatch], failures: list[WalrelayError]
    ) -> tuple[SchemaVersion, Iterator[pa.RecordBatch]]:
        first = next(batches)
        version = first.version

        def arrow() -> Iterator[pa.RecordBatch]:
            try:
                for one in itertools.chain([first], batches):
                    yield self._retargeted(version, one.batch)
            except WalrelayError as failure:
                failures.append(failure)
                raise

        return version, arrow()

    def _scan(self, part: TableChanges, files: list[DataFile]) -> str:
        """SQL over the segment files themselves; columns that a file leaves out are NULL."""
        storage = self._batch.log.storage
        paths = ", ".join(literal(storage.location(file.path)) for file in files)
        scan = f"read_parquet([{paths}], union_by_name=true, hive_partitioning=false)"
        present = {row[0] for row in self._rows(f"DESCRIBE SELECT * FROM {scan}")}
        columns = ", ".join(f'"{name}"' if name in present else f'NULL AS "{name}"' for name in _COLUMNS)
        wanted = f"end_lsn > {int(part.after)} AND end_lsn <= {int(part.to)}"
        if part.unseen_by is not None:
            wanted += f" AND {unseen_sql(part.unseen_by)}"
        return f"(SELECT {columns} FROM {scan} WHERE {wanted})"

    def _retargeted(self, version: SchemaVersion, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with what DuckDB cannot hold treated by policy; keys never are."""
        schema = version.schema
        if not _differs(schema):
            return batch
        treated = self.treated.setdefault(schema.id, Counter())
        # What a row held before was counted when it came.
        tallies = {name: Tally(DUCKDB, self._special_values, to) for name, to in (("row", treated), ("old", Counter()))}
        with _naming(schema):
            columns = [
                retarget_struct(column, schema, tallies[name], keys=schema.key_columns) if name in tallies else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    @contextmanager
    def _registered(self, name: str, source: Any) -> Iterator[None]:
        self._connection.register(name, source)
        yield
        # Not after a failure: within a transaction that failed DuckDB does nothing but roll back.
        self._connection.unregister(name)

    # ------------------------------------------------------------------------------------------------------- taking

    def _take(self, version: SchemaVersion, source: str, survey: Survey | None) -> int:
        """One run of changes into its table."""
        schema = version.schema
        in_memory = survey is not None
        survey = survey or Survey(*self._row(SURVEY.format(source=source)))
        if not survey.changes:
            # The file's changes are not of this batch; nor is the shape that they have.
            return 0
        copied = self._copied(schema.id)
        is_copied = copied is not None
        shape = self._follow(version)
        run = Run(schema, shape, place(self._catalog, shape.name), source, survey, whole=is_copied)
        if survey.truncates:
            run.after_truncate = self._row(run.last_truncate_sql())[0]
            self._connection.execute(f"DELETE FROM {run.table}")
        if not shape.columns:
            self._take_bare(run)
            return survey.changes
        if survey.unchanged and survey.unchanged_names is None:
            run.mark_unchanged(row[0] for row in self._rows(run.unchanged_sql()))
        else:
            run.mark_unchanged(survey.unchanged_names or ())
        if in_memory:
            self._connection.execute(run.flatten_sql())
        if run.key:
            self._take_keyed(run, survey, copied)
        else:
            self._take_loose(run, survey)
        if not in_memory:
            # What small runs leave behind is small, and replaced by the next one's.
            for name in TEMPORARY:
                self._connection.execute(f"DROP TABLE IF EXISTS {name}")
        return survey.changes

    def _copied(self, table: TableId) -> Lsn | None:
        progress = self._progress.get(table)
        return None if progress is None else progress.copied

    def _follow(self, version: SchemaVersion) -> Shape:
        table = version.schema.id
        shape = self._keeper.follow(self._shapes.get(table), version, whole=self._copied(table) is not None)
        self._shapes[table] = shape
        return shape

    def _take_keyed(self, run: Run, survey: Survey, copied: Lsn | None) -> None:
        """Delete every row whose key occurs, and insert what was put last under each. One that is there already is
        replaced: what was copied may come again, and the delete between two inserts need not be published."""
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {LAST} AS SELECT * FROM {run.last()}")
        if survey.only_inserts and not survey.unchanged:
            (keys,) = self._row(f"SELECT count(*) FROM {LAST}")
            if keys == survey.changes:
                self._connection.execute(run.delete_sql(LAST))
                self._connection.execute(run.insert_all_sql())
                return
        if survey.olds and self._row(run.has_no_key_sql())[0]:
            self._refuse_unnamed(run)
        if run.lacks_values:
            self._hold(run, copied)
        self._connection.execute(run.delete_sql(LAST))
        self._connection.execute(run.insert_last_sql(LAST, held=run.lacks_values))

    def _hold(self, run: Run, copied: Lsn | None) -> None:
        """Keep values that were not sent, before the rows that have them are deleted."""
        by_life = run.may_have_moved and self._row(run.has_moved_lacking_sql())[0] > 0
        if by_life:
            self._connection.execute(run.touches_sql())
            self._connection.execute(run.links_sql())
            self._shorten_links()
            self._connection.execute(run.lives_sql())
        self._connection.execute(run.held_sql(by_life=by_life, copied_lsn=copied))
        self._refuse_unsent(run, run.unsent_sql(HELD, "u"))
        (lost,) = self._row(f"SELECT count(*) FILTER (lost) FROM {HELD}")
        if lost:
            raise MissingRowError(
                f"{lost} rows that changes of {run.schema.name} leave in part unchanged are not there"
            )

    def _shorten_links(self) -> None:
        """Let every link point to the row's first epoch: each round halves the way."""
        step = (
            f"CREATE OR REPLACE TEMP TABLE {LINKS} AS SELECT a.child, coalesce(b.parent, a.parent) AS parent"
            f" FROM {LINKS} AS a LEFT JOIN {LINKS} AS b ON b.child = a.parent"
        )
        while self._row(f"SELECT count(*) FROM {LINKS} AS a SEMI JOIN {LINKS} AS b ON b.child = a.parent")[0]:
            self._connection.execute(step)

    def _take_loose(self, run: Run, survey: Survey) -> None:
        """Rows may be equal: for each that goes, take exactly one away (SEMANTICS 15)."""
        if survey.updates or survey.deletes:
            self._refuse_unnamed(run)
        if survey.unchanged:
            self._refuse_unsent(run, run.unsent_loose_sql())
        if not (survey.updates or survey.deletes):
            self._connection.execute(run.insert_all_sql())
            return
        if run.hides_row_ids:
            raise DestinationError(
                f"DuckDB cannot tell equal rows of {run.schema.name} apart: it has a column called rowid",
                hint="Give the table a primary key, or rename the column.",
            )
        self._connection.execute(run.net_sql())
        self._connection.execute(run.pick_exact_sql())
        (missing,) = self._row(run.missing_sql())
        while missing and run.has_added:
            self._connection.execute(run.pick_similar_sql())
            before, (missing,) = missing, self._row(run.missing_sql())
            if missing == before:
                break
        if missing and not run.whole and self._row(run.named_by_key_sql())[0]:
            # Where there was no copy a row may have been there before; but not one that is half named.
            raise UnnamedRowError(
                f"{missing} rows that changes of {run.schema.name} take away are named by a key which it does not have",
                hint=identity_hint(run.schema),
            )
        _refuse_missing(run, missing)
        self._connection.execute(run.delete_picked_sql())
        self._connection.execute(run.insert_net_sql())

    def _take_bare(self, run: Run) -> None:
        """A table without columns holds as many rows as its source."""
        (more,) = self._row(run.more_sql())
        if more > 0:
            self._connection.execute(run.insert_bare_sql(more))
        elif more < 0:
            (gone,) = self._row(run.delete_bare_sql(-more))
            _refuse_missing(run, -more - gone)

    def _refuse_unnamed(self, run: Run) -> None:
        """A row that is named by other columns than we look for it by would be taken for one that is not there."""
        (unnamed,) = self._row(run.unnamed_sql())
        if unnamed:
            raise unnamed_rows(run.schema, unnamed)

    def _refuse_unsent(self, run: Run, question: str) -> None:
        """A value that was not sent, and is nowhere else, is not NULL (SEMANTICS 14)."""
        names = [name for name in self._row(question)[0] if name is not None]
        if names:
            raise unsent_values(run.schema, names)

    def _rows(self, question: str) -> list[Any]:
        return self._connection.execute(question).fetchall()

    def _row(self, question: str) -> Any:
        """The only row. Fetched to the end: DuckDB 2 registers nothing while a result is unfinished."""
        (row,) = self._rows(question)
        return row


@contextmanager
def _own_words(failures: list[WalrelayError]) -> Iterator[None]:
    """Raise what a stream failed with: DuckDB, which reads it, says only that it did."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if failures:
            raise failures[0] from error
        raise


@contextmanager
def _naming(schema: TableSchema) -> Iterator[None]:
    """Say of a failure which table's changes it comes from, when it is not the whole file's: the others can go on."""
    import duckdb

    try:
        yield
    except (duckdb.DataError, duckdb.ProgrammingError, duckdb.IntegrityError, duckdb.NotSupportedError) as error:
        raise DestinationError(
            f"DuckDB could not take changes of {schema.name} ({type(error).__name__})",
            hint="Copy the table again; with --debug DuckDB's own words are shown.",
            context={"table": str(schema.name), "table_id": schema.id},
        ) from error
    except (DestinationError, SpecialValueError) as error:
        error.context.setdefault("table", str(schema.name))
        error.context["table_id"] = schema.id
        raise


def _refuse_missing(run: Run, missing: int) -> None:
    if missing and run.whole:
        raise MissingRowError(f"{missing} rows that changes of {run.schema.name} take away are not there")


def _differs(schema: TableSchema) -> bool:
    """Whether a value of the log may have to become another one for DuckDB."""
    return any(not column.as_text and differs(column.type, DUCKDB) for column in schema.columns)
