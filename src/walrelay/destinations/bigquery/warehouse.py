"""A dataset of BigQuery, as the run of a destination uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from walrelay.destinations.bigquery import load_values
from walrelay.destinations.bigquery.client import BigQueryClient
from walrelay.destinations.bigquery.dialect import LONGEST_COLUMN, BigQueryDialect, column_name, is_place
from walrelay.destinations.bigquery.failures import bigquery_failures
from walrelay.destinations.bigquery.fields import field
from walrelay.destinations.bigquery.restoring import BigQueryRestoring
from walrelay.destinations.bigquery.script import Script, as_table
from walrelay.destinations.bigquery.storage import Bucket
from walrelay.destinations.warehouse.names import OWN, STATE, state_place
from walrelay.destinations.warehouse.plan import Plan
from walrelay.destinations.warehouse.service import NewTable, Stage, Warehouse
from walrelay.destinations.warehouse.state import Alteration, Kept, TableState
from walrelay.errors import ConfigError, NameClashError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import Column

if TYPE_CHECKING:
    from google.cloud.bigquery.table import RowIterator

IDENTITY = f"{OWN}identity"
STAGE_LIVES = timedelta(days=1)
"""Then BigQuery itself drops a stage, should no run of the pipeline ever come back to do it."""
LOADS = 4
"""Files that are sent at the same time."""
MOST_CLUSTERED = 4
"""Columns that BigQuery keeps rows together by."""
_ASKED = 100
"""States in one question."""
_CLUSTERS = ("INT64", "STRING", "NUMERIC", "BIGNUMERIC", "DATE", "DATETIME", "TIMESTAMP", "BOOL")
RESTORING = BigQueryRestoring()
_STATE = "applied INT64, copy STRING, state STRING"


class BigQueryWarehouse(Warehouse):
    title = "BigQuery"
    array_nulls = False

    def __init__(
        self, client: BigQueryClient, project: str, dataset: str, dialect: BigQueryDialect, bucket: Bucket | None = None
    ) -> None:
        self._client = client
        self._project = project
        self._dataset = dataset
        self._bucket = bucket
        self.dialect: BigQueryDialect = dialect
        self._run = uuid4().hex[:12]

    @property
    def shown(self) -> str:
        return f"{self._project}.{self._dataset}"

    def _id(self, place: str) -> str:
        """As Google's client names it."""
        return f"{self._project}.{self._dataset}.{place}"

    def _named(self, place: str) -> str:
        """As a statement names it."""
        return f"`{self._project}`.`{self._dataset}`.`{place}`"

    def _asked(self, sql: str, doing: str, job: str | None = None, **values: Any) -> list[Any]:
        name = job or f"walrelay_{self._run}_{uuid4().hex}"
        return list(self._client.query(sql, name, doing, values))

    # ------------------------------------------------------------------------------------------------ names and values

    def here(self, name: str) -> str:
        return column_name(name)

    def told_apart(self, name: str) -> str:
        return column_name(name).casefold()

    def refuse_name(self, place: str, name: TableName) -> None:
        if not is_place(place):
            raise NameClashError(
                f"BigQuery has no table that is called as {name}: only letters, digits, spaces, dashes and underscores",
                hint="Rename the table, or leave it out of the publication.",
                context={"table": str(name)},
            )

    def landed(self, column: Column, value: str) -> str:
        return load_values.landed(column, value)

    def stage_type(self, column: Column) -> str:
        return "STRING" if self.dialect.is_document(column) else self.dialect.column_type(column)

    # ------------------------------------------------------------------------------------------------------------- life

    def check(self) -> None:
        with bigquery_failures(f"looking for the dataset {self.shown}"):
            found = self._client.google.get_dataset(f"{self._project}.{self._dataset}", **self._client.patience)
        wanted = self._client.location
        if wanted is not None and found.location and found.location.lower() != wanted.lower():
            raise ConfigError(
                f"the dataset {self.shown} is in {found.location}, not in {wanted}",
                hint=f"Write location={found.location}, or leave it out.",
            )
        self._client.stay_in(found.location)
        self._asked("SELECT 1", "trying whether queries may be run")
        if self._bucket is not None:
            self._bucket.check()

    def identity(self) -> str | None:
        if self._client.table(self._id(IDENTITY)) is None:
            return None
        ids = [row.id for row in self._asked(f"SELECT id FROM {self._named(IDENTITY)}", "asking which dataset it is")]
        return min(ids, default=None)

    def found(self, id_: str) -> str:
        self._client.make(self._id(IDENTITY), [field("id", "STRING")])
        self._asked(f"INSERT INTO {self._named(IDENTITY)} (id) VALUES (@id)", "giving the dataset an id", id=id_)
        return self.identity() or id_

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------------------------------------------------------ state

    def kept(self, source: str) -> list[Kept]:
        prefix = state_place(source, 0).removesuffix("0")
        return self._states([one for one in self._places() if one.startswith(prefix)])

    def _places(self) -> list[str]:
        return list(self._client.tables(f"{self._project}.{self._dataset}"))

    def _states(self, places: Sequence[str]) -> list[Kept]:
        found: list[Kept] = []
        for start in range(0, len(places), _ASKED):
            asked = " UNION ALL ".join(
                f"SELECT applied, state FROM {self._named(place)}" for place in places[start : start + _ASKED]
            )
            rows = self._asked(asked, "asking what is known of tables")
            found += [
                Kept(TableState.from_json(row.state), None if row.applied is None else Lsn(row.applied)) for row in rows
            ]
        return found

    def read(self, source: str, table: TableId) -> Kept | None:
        place = state_place(source, table)
        if self._client.table(self._id(place)) is None:
            return None
        return next(iter(self._states([place])), None)

    def begin(self, state: TableState, applied: Lsn | None) -> None:
        place, at = self._named(state_place(state.source, state.table)), "NULL" if applied is None else int(applied)
        self._asked(
            f"CREATE OR REPLACE TABLE {place} ({_STATE}) AS"
            f" SELECT CAST({at} AS INT64) AS applied, @copy AS copy, @state AS state",
            "writing down what a table is",
            copy=state.copy,
            state=state.to_json(),
        )

    def put(self, state: TableState) -> None:
        place = self._named(state_place(state.source, state.table))
        self._asked(
            f"UPDATE {place} AS p SET state = @state WHERE TRUE",
            "writing down what a table is",
            state=state.to_json(),
        )

    def forget(self, source: str, table: TableId) -> None:
        place = self._named(state_place(source, table))
        self._asked(f"UPDATE {place} AS p SET applied = NULL WHERE TRUE", "forgetting how far a table is")

    def disown(self, source: str, table: TableId) -> None:
        self._client.drop(self._id(state_place(source, table)))

    def owners(self, places: Collection[str]) -> Mapping[str, str]:
        known = self._states([one for one in self._places() if one.startswith(STATE)])
        return {one.state.place: one.state.source for one in known if one.state.place in places}

    # ----------------------------------------------------------------------------------------------------------- tables

    def columns(self, place: str) -> frozenset[str] | None:
        found = self._client.table(self._id(place))
        return None if found is None else frozenset(one.name for one in found.schema)

    def replace(self, table: NewTable, stage: Stage | None) -> None:
        self._refuse_long(table)
        quoted, kinds = self.dialect.quoted, self.dialect.column_type
        parts = [f"{quoted(one.name)} {kinds(one)}" for one in table.columns]
        if table.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))}) NOT ENFORCED")
        clustered = self._clustered(table)
        by = f" CLUSTER BY {', '.join(map(quoted, clustered))}" if clustered else ""
        rows = ""
        if stage is not None:
            values = ", ".join(
                f"{as_table(self.dialect, one, f's.n{i}')} AS {quoted(one.name)}" for i, one in enumerate(table.columns)
            )
            rows = f" AS SELECT {values} FROM {self._named(stage.place)} AS s"
        made = f"CREATE OR REPLACE TABLE {self._named(table.place)} ({', '.join(parts)}){by}{rows}"
        self._asked(made, "putting a copy in its place")

    def _refuse_long(self, table: NewTable) -> None:
        long = [one.name for one in table.columns if len(column_name(one.name)) > LONGEST_COLUMN]
        if long:
            raise NameClashError(
                f"a column of {table.place} has a longer name than BigQuery takes: {long[0]}",
                hint="Rename it, or leave it out of the publication's column list.",
            )

    def _clustered(self, table: NewTable) -> list[str]:
        """The first columns of the key, as long as BigQuery can sort by them."""
        types = {one.name: self.dialect.column_type(one).partition("(")[0] for one in table.columns}
        found: list[str] = []
        for name in table.sort[:MOST_CLUSTERED]:
            if types[name] not in _CLUSTERS:
                break
            found.append(name)
        return found

    def alter(self, place: str, step: Alteration) -> None:
        self._asked(f"ALTER TABLE {self._named(place)} {_altered(step)}", "altering a table")

    def move(self, old: str, new: str) -> None:
        self._asked(f"ALTER TABLE {self._named(old)} RENAME TO `{new}`", "renaming a table")

    # ---------------------------------------------------------------------------------------------------------- writing

    def load(self, stage: Stage, files: Sequence[Path]) -> None:
        schema = [field(name, type_) for name, type_ in stage.columns]
        place, doing = self._id(stage.place), "loading a file"
        self._client.make(place, schema, STAGE_LIVES)
        if self._bucket is not None:
            with self._bucket.holding(stage.place, files) as urls:
                self._client.load_from(place, schema, urls, f"{stage.place}_load", doing)
            return
        with ThreadPoolExecutor(LOADS, thread_name_prefix="walrelay-load") as pool:
            sent = [
                pool.submit(self._client.load, place, schema, file, f"{stage.place}_load_{number}", doing)
                for number, file in enumerate(files)
            ]
        for one in sent:
            one.result()

    def drop(self, stage: Stage) -> None:
        self._client.drop(self._id(stage.place))

    def sweep(self, prefix: str) -> None:
        for place in self._places():
            if place.startswith(prefix):
                self._client.drop(self._id(place))

    def apply(self, plan: Plan) -> tuple[Lsn | None, str]:
        script = Script(plan, self.dialect, self._named).sql()
        doing = f"taking a batch up to {plan.lsn}"
        values = {"since": int(plan.since), "lsn": int(plan.lsn), "copy": plan.copy}
        (row,) = self._asked(script, doing, f"{plan.stage}_apply", **values)
        return None if row.applied is None else Lsn(row.applied), row.copy

    # ---------------------------------------------------------------------------------------------------------- reading

    @contextmanager
    def looking(self) -> Iterator[_Moment]:
        (row,) = self._asked("SELECT CURRENT_TIMESTAMP() AS at", "asking what time it is")
        yield _Moment(self, row.at)

    def restored(self, column: Column, value: str) -> str:
        return RESTORING.column(column, value)

    def read_at(self, place: str, listed: str, at: datetime) -> RowIterator:
        job = f"walrelay_{self._run}_{uuid4().hex}"
        asked = f"SELECT {listed} FROM {self._named(place)} FOR SYSTEM_TIME AS OF @at"
        return self._client.query(asked, job, "reading a table", {"at": at})

    def pieces(self, found: RowIterator) -> Iterator[pa.RecordBatch]:
        with bigquery_failures("reading a table"):
            yield from found.to_arrow_iterable(bqstorage_client=self._client.storage())


class _Moment:
    """The dataset as it was then: a transaction is seen as a whole, whatever comes after it."""

    def __init__(self, warehouse: BigQueryWarehouse, at: datetime) -> None:
        self._warehouse = warehouse
        self._at = at

    def fixed(self, source: str, table: TableId) -> Kept | None:
        place = state_place(source, table)
        if self._warehouse.columns(place) is None:
            return None
        rows = list(self._warehouse.read_at(place, "applied, state", self._at))
        found = [
            Kept(TableState.from_json(row.state), None if row.applied is None else Lsn(row.applied)) for row in rows
        ]
        return found[0] if found else None

    def rows(self, place: str, names: Sequence[str], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        listed = ", ".join(f"`{name}` AS c{i}" for i, name in enumerate(names))
        yield from self._warehouse.pieces(self._warehouse.read_at(place, listed, self._at))


def _altered(step: Alteration) -> str:
    column = f"`{step.column}`"
    match step.kind:
        case "drop":
            return f"DROP COLUMN {column}"
        case "rename":
            return f"RENAME COLUMN {column} TO `{step.to}`"
        case "retype":
            return f"ALTER COLUMN {column} SET DATA TYPE {step.to}"
        case "add":
            return f"ADD COLUMN {column} {step.to}"
