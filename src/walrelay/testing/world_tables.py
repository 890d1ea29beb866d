"""The tables of a random world, as they are at the moment when a client looks at them: moves fit whatever it finds."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from random import Random
from typing import Any, LiteralString

import psycopg
from psycopg import sql

Connection = psycopg.Connection[Any]

PARTITIONED = 2
"""So many of the tables, the last ones, have partitions."""
KEYS = 400
LEAF_SPAN = 100

TYPES: tuple[LiteralString, ...] = (
    "int",
    "bigint",
    "text",
    "varchar(12)",
    "char(5)",
    "numeric(8, 2)",
    "timestamp(6)",
    "date",
    "boolean",
    "json",
    "mood",
)
"""What columns are made of."""

TABLES: tuple[LiteralString, ...] = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'glad')",
    "CREATE SCHEMA aside",
    "CREATE TABLE w0 (id int PRIMARY KEY, k int NOT NULL, c0 text, c1 int, c2 text)",
    "CREATE TABLE w1 (id int PRIMARY KEY, k int NOT NULL, c0 varchar(12), c1 numeric(8, 2), c2 timestamp(6))",
    "CREATE TABLE w2 (id int, k int, c0 text, c1 text, PRIMARY KEY (id, k))",
    "CREATE TABLE w3 (id int NOT NULL, k int NOT NULL, c0 text, c1 boolean)",
    "ALTER TABLE w3 REPLICA IDENTITY FULL",
    "CREATE TABLE w4 (id int PRIMARY KEY, k int NOT NULL, c0 mood, c1 char(5), c2 json)",
    "CREATE TABLE w5 (id int PRIMARY KEY, k int NOT NULL, c0 int, c1 int GENERATED ALWAYS AS (c0 * 2) STORED)",
    "CREATE TABLE w6 (id int PRIMARY KEY, k int NOT NULL, c0 text, c1 bigint)",
    "CREATE TABLE w7 (id int PRIMARY KEY, k int NOT NULL, c0 mood, c1 date)",
    "CREATE TABLE w8 (id int PRIMARY KEY, k int NOT NULL, c0 text, c1 int) PARTITION BY RANGE (id)",
    "CREATE TABLE w9 (id int PRIMARY KEY, k int NOT NULL, c0 text, c1 numeric(8, 2)) PARTITION BY RANGE (id)",
)

_NOW = """
    SELECT n.nspname::text, c.relname::text, c.relkind::text = 'p',
           (SELECT conname::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p'),
           EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE r.prrelid = c.oid AND p.pubname = %(publication)s),
           ARRAY(SELECT ARRAY[a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated::text,
                              coalesce(a.attnum = ANY (i.indkey), false)::text]
                 FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %(oid)s
"""
_LEAVES = """
    SELECT n.nspname::text, c.relname::text, (regexp_match(pg_get_expr(c.relpartbound, c.oid), '\\d+'))[1]::int
    FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE h.inhparent = %(oid)s ORDER BY 3
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A column."""

    name: str
    type: str
    is_generated: bool
    is_key: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition, and where its range begins."""

    place: sql.Identifier
    start: int


@dataclass(frozen=True, slots=True)
class Now:
    """A table as it is."""

    oid: int
    schema: str
    name: str
    is_partitioned: bool
    primary_key: str | None
    """The constraint's name."""
    is_published: bool
    columns: tuple[Part, ...]

    @property
    def place(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def free(self) -> list[Part]:
        """Columns that may be dropped and given another type."""
        return [part for part in self.columns if not part.is_key and part.name not in ("id", "k")]

    @property
    def written(self) -> list[Part]:
        return [part for part in self.columns if not part.is_generated]


def look_at(connection: Connection, oid: int, publication: str) -> Now:
    row = connection.execute(_NOW, {"oid": oid, "publication": publication}).fetchone()
    assert row is not None, "tables of a world are never dropped"
    schema, name, is_partitioned, primary_key, is_published, parts = row
    columns = tuple(Part(column, type_, generated != "", key == "true") for column, type_, generated, key in parts)
    return Now(oid, schema, name, is_partitioned, primary_key, is_published, columns)


def fill(connection: Connection, rng: Random, table: Now, rows: int) -> None:
    """Give a new table its partitions, if it has some, and rows of which no change will tell."""
    for start in range(1, KEYS, LEAF_SPAN) if table.is_partitioned else ():
        leaf = sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})")
        name = sql.Identifier(f"{table.name}_{start}")
        connection.execute(leaf.format(name, table.place, sql.Literal(start), sql.Literal(start + LEAF_SPAN)))
    names = sql.SQL(", ").join(sql.Identifier(part.name) for part in table.written)
    lines = (
        [sql.Literal(n) if part.name == "id" else value(connection, rng, part) for part in table.written]
        for n in range(1, rows + 1)
    )
    values = sql.SQL(", ").join(sql.SQL("({})").format(sql.SQL(", ").join(line)) for line in lines)
    connection.execute(sql.SQL("INSERT INTO {} ({}) VALUES {}").format(table.place, names, values))


def leaves_of(connection: Connection, oid: int) -> list[Leaf]:
    rows = connection.execute(_LEAVES, {"oid": oid}).fetchall()
    return [Leaf(sql.Identifier(schema, name), start) for schema, name, start in rows]


def labels(connection: Connection) -> list[str]:
    """Of the enum, those that any transaction may use."""
    rows = connection.execute(
        "SELECT enumlabel::text FROM pg_enum WHERE enumtypid = 'mood'::regtype ORDER BY enumsortorder"
    ).fetchall()
    return [label for (label,) in rows]


def value(connection: Connection, rng: Random, part: Part) -> sql.Composable:
    """A literal for a column, whatever its type is by now."""
    if part.name in ("id", "k"):
        return sql.Literal(str(rng.randint(1, KEYS if part.name == "id" else 10**9)))
    if rng.random() < 0.1:
        return sql.SQL("NULL")
    return sql.Literal(_text(connection, rng, part.type))


def _text(connection: Connection, rng: Random, type_: str) -> str:
    match type_.partition("(")[0].split()[0]:
        case "integer" | "bigint":
            return str(rng.randint(-9999, 9999))
        case "numeric":
            return f"{rng.randint(-99999, 99999) / 100:.2f}"
        case "timestamp":
            return f"2024-0{rng.randint(1, 9)}-11 10:20:{rng.randint(10, 59)}.{rng.randint(100000, 999999)}"
        case "date":
            return f"2024-0{rng.randint(1, 9)}-11"
        case "boolean":
            return rng.choice(("true", "false"))
        case "json" | "jsonb":
            return f'{{"b": {rng.randint(0, 99)},  "a": "x"}}'
        case "mood":
            return rng.choice(labels(connection))
        case "text" if rng.random() < 0.15:  # so long, and so random, that Postgres stores it out of line
            return base64.b64encode(rng.randbytes(rng.randint(6200, 8000))).decode()
        case _:
            return rng.choice(("", "x", "ab ", "Word", f"t{rng.randint(0, 999)}"))
