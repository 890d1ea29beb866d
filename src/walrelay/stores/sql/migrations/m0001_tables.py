"""The first tables, as they were then: this does not follow `tables.py`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text

_PIPELINE: Final = ("pipeline_id", Text)
_TABLE: Final = ("table_id", BigInteger)


def upgrade(connection: Connection) -> None:
    metadata = MetaData(schema="walrelay")

    def table(name: str, key: tuple[tuple[str, type], ...], *columns: Column[object]) -> None:
        Table(name, metadata, *(_key(*part) for part in key), *columns)

    table("pipelines", (_PIPELINE,), _text("created_at"))
    table("table_phases", (_PIPELINE, _TABLE, ("position", Integer)), _text("phase"))
    table(
        "worker_progress",
        (_PIPELINE, ("worker", Text)),
        _text("slot"),
        _text("system_identifier"),
        Column("timeline", BigInteger, nullable=False),
        _text("created_lsn"),
        _text("lsn"),
        _text("updated_at"),
    )
    table(
        "destination_tables",
        (_PIPELINE, _TABLE),
        _text("destination_table"),
        _text("snapshot_lsn"),
        _text("previous_snapshot_lsn", nullable=True),
        _text("status"),
        _text("replication_mask"),
    )
    table("table_mappings", (_PIPELINE, _TABLE), _text("destination_table"))
    table("table_schemas", (_PIPELINE, _TABLE, ("snapshot_lsn", Text)), _text("body"))
    metadata.create_all(connection, checkfirst=False)


def _key(name: str, kind: type) -> Column[object]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _text(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Text, nullable=nullable)
