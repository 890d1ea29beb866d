"""What capture makes of Relation messages: a table's shape with attribute numbers, or a doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from walrelay.capture.column_numbers import ColumnNumbers
from walrelay.capture.sightings import SightingBook, Told
from walrelay.log.schemas import Described
from walrelay.log.storage import Storage
from walrelay.model.ddl import PREFIX, DdlFailed, TableAltered, TableDropped, parse_ddl
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.sightings import LookTime, NamedColumn, Sighting
from walrelay.postgres.catalog import published_tables
from walrelay.postgres.connection import Connection
from walrelay.postgres.fingerprints import look
from walrelay.postgres.relations import describe_relation
from walrelay.wire.pgoutput import LogicalMessage, Relation

DOUBT = "it was altered more than once, and which of its columns is which cannot be told from the outside"


class RelationShapes:
    """For one connection and its writer's thread."""

    def __init__(self, catalog: Connection, publication: str, storage: Storage) -> None:
        self._catalog = catalog
        self._publication = publication
        self._storage = storage
        self._numbers: ColumnNumbers | None = None

    def begin(self, durable_lsn: Lsn) -> None:
        """Look at all published tables before the first message comes."""
        self._numbers = ColumnNumbers(SightingBook(self._storage, durable_lsn), self._look)

    def describe(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Described:
        assert self._numbers is not None, "begin() comes first"
        numbers = self._numbers.of(relation, commit_lsn, xid)
        schema = describe_relation(self._catalog, relation, numbers)
        return Described(schema, "" if numbers is not None or not relation.columns else DOUBT)

    def told(self, message: LogicalMessage, commit_lsn: Lsn, xid: int) -> None:
        """A logical message; those of the DDL event trigger say what a table looks like from here on."""
        if message.prefix != PREFIX or not message.transactional:
            return
        assert self._numbers is not None, "begin() comes first"
        try:
            ddl = parse_ddl(message.content)
        except ValueError:
            self._numbers.distrust(commit_lsn, xid)  # of another version of ours, or somebody plays tricks
            return
        match ddl:
            case TableAltered():
                columns = ((one.attnum, NamedColumn(one.name, one.type, one.modifier)) for one in ddl.table.columns)
                self._numbers.told(Told(ddl.table.id, commit_lsn, tuple(columns), xid))
            case DdlFailed():
                self._numbers.distrust(commit_lsn, xid)
            case TableDropped():
                pass
            case _:
                assert_never(ddl)

    def forget(self, durable_lsn: Lsn) -> None:
        assert self._numbers is not None, "begin() comes first"
        self._numbers.forget(durable_lsn)

    def _look(self, tables: Sequence[TableId] | None) -> tuple[list[Sighting], LookTime]:
        if tables is None:
            tables = [one.id for one in published_tables(self._catalog, self._publication)]
        looked = look(self._catalog, self._publication, tables)
        return [one.sighting for one in looked.tables.values()], looked.time
