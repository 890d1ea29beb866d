"""How the suites look at a destination that holds tables, and at its errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from walrelay.destinations.base import Destination
from walrelay.errors import WalrelayError
from walrelay.model.schema import TableSchema
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.testing.contract.fixtures import ContractFixtures
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.stories import NAMES
from walrelay.testing.replay import postgres_text
from walrelay.testing.sample import Row, plain_row


class TablesFixtures(ContractFixtures):
    """Subclasses say what a reader finds: `rows`."""

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        """What a reader finds in a table, whose name is as Postgres writes it; raises when there is none."""
        raise NotImplementedError

    def held(self, destination: Destination, tables: Iterable[str] = NAMES) -> dict[str, list[Row]]:
        """By name, of tables in the schema `public`."""
        return {
            name: sorted(as_text(row) for row in self.rows(destination, name))
            for name in (f"public.{table}" for table in tables)
        }

    def copied(self, source: ContractSource, destination: Destination, tables: Iterable[str] = NAMES) -> None:
        with exported_snapshot(source.source, application="walrelay contract") as snapshot:
            for table in tables:
                assert source.copy(destination, table, snapshot).durable


def as_text(row: dict[str, Any]) -> Row:
    return plain_row({name: None if value is None else postgres_text(value) for name, value in row.items()})


def names_table(error: WalrelayError, schema: TableSchema) -> bool:
    """Whether a pipeline can tell from the error which table it has to go on without."""
    return bool({error.context.get("table"), error.context.get("table_id")} & {str(schema.name), schema.id})
