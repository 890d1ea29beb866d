"""A schema of Snowflake, as the run of a destination uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from walrelay.destinations.snowflake import dialect as values
from walrelay.destinations.snowflake.client import Session, SnowflakeClient
from walrelay.destinations.snowflake.dialect import SnowflakeDialect, from_file
from walrelay.destinations.snowflake.restoring import SnowflakeRestoring
from walrelay.destinations.snowflake.statements import Statements, name
from walrelay.destinations.warehouse.names import OWN, STATE, files_place, state_place, table_place
from walrelay.destinations.warehouse.plan import Plan, Step
from walrelay.destinations.warehouse.service import NewTable, Stage, Warehouse
from walrelay.destinations.warehouse.state import Alteration, Kept, TableState
from walrelay.errors import DestinationPlaceMissingError, NameClashError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import Column

IDENTITY = f"{OWN}identity"
LONGEST = 255
"""Characters of a name."""
_ASKED = 100
"""States in one question."""
_AS_TEXT = ("NUMBER", "TIMESTAMP", "DATE")
RESTORING = SnowflakeRestoring()
_STATE = '"applied" NUMBER(38, 0), "copy" VARCHAR, "state" VARCHAR'
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = CURRENT_SCHEMA()"
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = CURRENT_SCHEMA() AND table_name = ?"


class SnowflakeWarehouse(Warehouse):
    title = "Snowflake"
    array_nulls = True

    def __init__(self, client: SnowflakeClient, shown: str, dialect: SnowflakeDialect, pipeline: str) -> None:
        self._client = client
        self._shown = shown
        self.dialect: SnowflakeDialect = dialect
        self._files = files_place(pipeline)

    @property
    def shown(self) -> str:
        return self._shown

    def _run(self, sql: str, doing: str, *given: Any) -> int:
        with self._client.session() as session:
            return session.run(sql, doing, *given)

    def _asked(self, sql: str, doing: str, *given: Any) -> list[Any]:
        with self._client.session() as session:
            return session.rows(sql, doing, *given)

    # ------------------------------------------------------------------------------------------------ names and values

    def here(self, name: str) -> str:
        return self.dialect.here(name)

    def place(self, name: TableName) -> str:
        return self.dialect.here(table_place(name))

    def refuse_name(self, place: str, name: TableName) -> None:
        if len(place) > LONGEST:
            raise NameClashError(
                f"{name} has a longer name than Snowflake takes",
                hint="Rename the table, or leave it out of the publication.",
                context={"table": str(name)},
            )

    def landed(self, column: Column, value: str) -> str:
        return values.landed(column, value)

    def stage_type(self, column: Column) -> str:
        return self.dialect.column_type(column)

    # ------------------------------------------------------------------------------------------------------------- life

    def check(self) -> None:
        ((database, schema),) = self._asked("SELECT CURRENT_DATABASE(), CURRENT_SCHEMA()", "looking for the schema")
        if database is None or schema is None:
            raise DestinationPlaceMissingError(
                f"there is no {self._shown} in Snowflake, or not for this role",
                hint="Make the database and the schema, and grant USAGE on both to the role.",
            )
        self._asked(f"{_TABLES} LIMIT 1", "looking for tables")

    def identity(self) -> str | None:
        if IDENTITY not in self._places(IDENTITY):
            return None
        return min(
            (one for (one,) in self._asked(f'SELECT "id" FROM {name(IDENTITY)}', "asking which it is")), default=None
        )

    def found(self, id_: str) -> str:
        doing = "giving the schema an id"
        self._run(f'CREATE TABLE IF NOT EXISTS {name(IDENTITY)} ("id" VARCHAR)', doing)
        self._run(f"INSERT INTO {name(IDENTITY)} VALUES (?)", doing, id_)
        return self.identity() or id_

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------------------------------------------------------ state

    def _places(self, prefix: str) -> list[str]:
        asked = f"{_TABLES} AND STARTSWITH(table_name, ?)"
        return [one for (one,) in self._asked(asked, "listing tables", prefix)]

    def kept(self, source: str) -> list[Kept]:
        return self._states(self._places(state_place(source, 0).removesuffix("0")))

    def _states(self, places: Sequence[str]) -> list[Kept]:
        found: list[Kept] = []
        for start in range(0, len(places), _ASKED):
            asked = " UNION ALL ".join(
                f'SELECT "applied", "state" FROM {name(place)}' for place in places[start : start + _ASKED]
            )
            rows = self._asked(asked, "asking what is known of tables")
            found += [
                Kept(TableState.from_json(state), None if applied is None else Lsn(applied)) for applied, state in rows
            ]
        return found

    def read(self, source: str, table: TableId) -> Kept | None:
        place = state_place(source, table)
        return next(iter(self._states(self._places(place))), None)

    def begin(self, state: TableState, applied: Lsn | None) -> None:
        """A state that is there is changed by one statement: none is ever without its row once its table was made."""
        place, doing = name(state_place(state.source, state.table)), "writing down what a table is"
        given = (None if applied is None else int(applied), state.copy, state.to_json())
        with self._client.session() as session:
            session.run(f"CREATE TABLE IF NOT EXISTS {place} ({_STATE})", doing)
            if not session.run(f'UPDATE {place} SET "applied" = ?, "copy" = ?, "state" = ?', doing, *given):
                session.run(f"INSERT INTO {place} VALUES (?, ?, ?)", doing, *given)

    def put(self, state: TableState) -> None:
        place = name(state_place(state.source, state.table))
        self._run(f'UPDATE {place} SET "state" = ?', "writing down what a table is", state.to_json())

    def forget(self, source: str, table: TableId) -> None:
        self._run(f'UPDATE {name(state_place(source, table))} SET "applied" = NULL', "forgetting how far a table is")

    def disown(self, source: str, table: TableId) -> None:
        self._run(f"DROP TABLE IF EXISTS {name(state_place(source, table))}", "forgetting a table")

    def owners(self, places: Collection[str]) -> Mapping[str, str]:
        known = self._states(self._places(STATE))
        return {one.state.place: one.state.source for one in known if one.state.place in places}

    # ----------------------------------------------------------------------------------------------------------- tables

    def columns(self, place: str) -> frozenset[str] | None:
        found = frozenset(one for (one,) in self._asked(_COLUMNS, "looking for a table", place))
        return found or None

    def replace(self, table: NewTable, stage: Stage | None) -> None:
        parts = [f"{self.dialect.quoted(one.name)} {self.dialect.column_type(one)}" for one in table.columns]
        rows = ""
        if stage is not None:
            listed = ", ".join(f's."n{i}"' for i in range(len(table.columns)))
            rows = f" AS SELECT {listed} FROM {name(stage.place)} AS s"
        self._run(f"CREATE OR REPLACE TABLE {name(table.place)} ({', '.join(parts)}){rows}", "putting a copy in place")

    def alter(self, place: str, step: Alteration) -> None:
        self._run(f"ALTER TABLE {name(place)} {_altered(step)}", "altering a table")

    def move(self, old: str, new: str) -> None:
        self._run(f"ALTER TABLE {name(old)} RENAME TO {name(new)}", "renaming a table")

    # ---------------------------------------------------------------------------------------------------------- writing

    def load(self, stage: Stage, files: Sequence[Path]) -> None:
        """By a stage for files, in a directory of this attempt's; Snowflake removes what it has loaded."""
        directory = f"@{self._files}/{stage.place}/"
        columns = ", ".join(f"{name(one)} {type_}" for one, type_ in stage.columns)
        listed = ", ".join(name(one) for one, _ in stage.columns)
        taken = ", ".join(from_file(type_, f"$1:{one}") for one, type_ in stage.columns)
        doing = "loading files"
        with self._client.session() as session:
            session.run(f"CREATE OR REPLACE TABLE {name(stage.place)} ({columns})", doing)
            place = files[0].parent.as_posix().replace("'", "\\'")
            session.run(
                f"PUT 'file://{place}/*.parquet' {directory} AUTO_COMPRESS=FALSE SOURCE_COMPRESSION=NONE OVERWRITE=TRUE"
                " PARALLEL=4",
                doing,
            )
            session.run(
                f"COPY INTO {name(stage.place)} ({listed}) FROM (SELECT {taken} FROM {directory})"
                " FILE_FORMAT=(TYPE=PARQUET USE_LOGICAL_TYPE=TRUE BINARY_AS_TEXT=FALSE) PURGE=TRUE",
                doing,
            )

    def drop(self, stage: Stage) -> None:
        self._run(f"DROP TABLE IF EXISTS {name(stage.place)}", "dropping what was loaded")

    def sweep(self, prefix: str) -> None:
        """Files that a dead run has sent go with the stage that holds them."""
        self._run(f"CREATE OR REPLACE STAGE {self._files}", "making a stage for files")
        for place in self._places(prefix):
            self._run(f"DROP TABLE IF EXISTS {name(place)}", "dropping what was loaded")

    def apply(self, plan: Plan) -> tuple[Lsn | None, str]:
        statements, doing = Statements(plan, self.dialect), f"taking a batch up to {plan.lsn}"
        with self._client.session() as session:
            with session.transaction(doing):
                is_here = session.run(statements.guard(), doing, int(plan.lsn), int(plan.since), plan.copy)
                for step in plan.steps if is_here else ():
                    question = statements.refusal(step)
                    if question is None:
                        session.run(statements.statement(step), doing)
                    elif session.rows(question, doing)[0][0]:
                        raise plan.unsent if step is Step.REFUSE_UNSENT else plan.missing
            ((applied, copy),) = session.rows(f'SELECT "applied", "copy" FROM {name(plan.state)}', doing)
        return None if applied is None else Lsn(applied), copy

    # ---------------------------------------------------------------------------------------------------------- reading

    @contextmanager
    def looking(self) -> Iterator[_Held]:
        with self._client.session() as session:
            doing = "looking at tables"
            session.run("BEGIN", doing)
            try:
                yield _Held(self, session)
            finally:
                session.run("ROLLBACK", doing)

    def restored(self, column: Column, value: str) -> str:
        return RESTORING.column(column, value)


class _Held:
    """Tables that nobody writes to meanwhile: their state is held, which is the first that a batch asks for."""

    def __init__(self, warehouse: SnowflakeWarehouse, session: Session) -> None:
        self._warehouse = warehouse
        self._session = session

    def fixed(self, source: str, table: TableId) -> Kept | None:
        place, doing = state_place(source, table), "looking at a table"
        if self._warehouse.columns(place) is None:
            return None
        self._session.run(f'UPDATE {name(place)} SET "applied" = "applied"', doing)
        rows = self._session.rows(f'SELECT "applied", "state" FROM {name(place)}', doing)
        found = [
            Kept(TableState.from_json(state), None if applied is None else Lsn(applied)) for applied, state in rows
        ]
        return found[0] if found else None

    def rows(self, place: str, names: Sequence[str], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        kinds = [self._warehouse.dialect.column_type(column) for column in columns]
        # As text what Arrow's nanoseconds have no room for, or the connector would make a double of.
        read = [
            f"{name(one)}::VARCHAR" if kind.startswith(_AS_TEXT) else name(one)
            for one, kind in zip(names, kinds, strict=True)
        ]
        listed = ", ".join(f'{one} AS "c{i}"' for i, one in enumerate(read))
        for table in self._session.arrow(f"SELECT {listed} FROM {name(place)}", "reading a table"):
            yield from table.to_batches()


def _altered(step: Alteration) -> str:
    column = name(step.column)
    match step.kind:
        case "drop":
            return f"DROP COLUMN {column}"
        case "rename":
            return f"RENAME COLUMN {column} TO {name(step.to)}"
        case "retype":
            return f"ALTER COLUMN {column} SET DATA TYPE {step.to}"
        case "add":
            return f"ADD COLUMN {column} {step.to}"
