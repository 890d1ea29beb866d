"""A SQL database as a place for a store: opened, migrated, read and written, with failures by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from walrelay.stores.failures import StoreDamagedError, StoreError, StoreUnreachableError
from walrelay.stores.sql.migrate import is_current, migrate
from walrelay.stores.sql.tables import SCHEMA, pipelines

IN_DOUBT: Final = "in_doubt"
"""In an error's context: the commit was asked for, but no answer came; it may have taken effect."""


class Database(ABC):
    """One kind of database; what is peculiar to it is in the subclass."""

    def __init__(self, engine: Engine, *, schema: str | None, where: str) -> None:
        self._engine = engine.execution_options(schema_translate_map={SCHEMA: schema})
        self._schema = schema
        self.where = where
        """The place, fit to be shown."""

    @abstractmethod
    def _prepare(self, connection: Connection) -> None:
        """Take the migrations' lock until the transaction ends, and make the schema when there is none."""

    @abstractmethod
    def _begin_writing(self, connection: Connection) -> Connection:
        """The connection, such that its next transaction is one that writes."""

    @abstractmethod
    def _name(self, error: DBAPIError) -> StoreError:
        """Our error for what the database said."""

    def open(self, pipeline_id: str) -> None:
        """Bring the tables to this version's shape, and enter the pipeline."""
        with self.reading() as connection:
            current = is_current(connection, self._schema, self.where)
        if not current:
            with self._transaction() as connection:
                self._prepare(connection)
                migrate(connection, self._schema, self.where)
        with self.reading() as connection:
            known = connection.execute(select(pipelines).where(pipelines.c.pipeline_id == pipeline_id)).first()
        if known is None:
            with self._transaction() as connection:
                self._enter(connection, pipeline_id)

    @abstractmethod
    def _enter(self, connection: Connection, pipeline_id: str) -> None:
        """Add the pipeline unless somebody just did."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.named(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, pipeline_id: str) -> Iterator[Connection]:
        """A transaction that no other of this pipeline runs beside; committed at the end of the block, or undone."""
        with self._transaction() as connection:
            mine = select(pipelines.c.pipeline_id).where(pipelines.c.pipeline_id == pipeline_id)
            if connection.execute(mine.with_for_update()).first() is None:
                raise StoreDamagedError(f"the store {self.where} no longer knows the pipeline {pipeline_id}")
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self.named(), self._engine.connect() as plain:
            connection = self._begin_writing(plain)
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                named = self._name(error)
                named.context[IN_DOUBT] = True
                raise named from error

    @contextmanager
    def named(self) -> Iterator[None]:
        """Failures of the database inside the block become ours."""
        try:
            yield
        except DBAPIError as error:
            raise self._name(error) from error
        except PoolTimeoutError as error:
            raise StoreUnreachableError(f"the store {self.where} has no connection left") from error
        except SQLAlchemyError as error:
            raise StoreError(f"the store {self.where} failed: {type(error).__name__}") from error

    def close(self) -> None:
        self._engine.dispose()


def entry(pipeline_id: str) -> dict[str, str]:
    """The row of a new pipeline."""
    return {"pipeline_id": pipeline_id, "created_at": datetime.now(UTC).isoformat()}
