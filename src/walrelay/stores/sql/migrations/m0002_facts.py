"""Small facts about tables and the pipeline, each a JSON document under a name."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text


def upgrade(connection: Connection) -> None:
    metadata = MetaData(schema="walrelay")
    Table(
        "facts",
        metadata,
        Column("pipeline_id", Text, primary_key=True),
        Column("table_id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", Text, primary_key=True),
        Column("body", Text, nullable=False),
    )
    metadata.create_all(connection, checkfirst=False)
