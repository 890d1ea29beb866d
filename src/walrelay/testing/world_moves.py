"""What clients of a random world do: rows, shapes, partitions and the publication, drawn from random numbers.

A move looks at the tables as they are and gives statements for them. Any may fail in the race with another client, or
because Postgres does not allow it just now; the world goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import LiteralString, TypeVar

from psycopg import sql

from walrelay.testing.world_tables import (
    KEYS,
    LEAF_SPAN,
    PARTITIONED,
    TYPES,
    Connection,
    Now,
    labels,
    leaves_of,
    look_at,
    value,
)

T = TypeVar("T")
Statements = list[sql.Composed]

FEWEST_PUBLISHED = 5
_PUBLICATION_LOCK = 7_431
_COLUMN_NAMES = tuple(f"c{number}" for number in range(7))
"""Few, so that names come back, on other columns."""
_TABLE_NAMES = tuple(f"w{number}" for number in range(14))
_LABELS = ("sad", "so so", "glad", "blue", "calm", "wild", "mild")

# By the first word of what a type prints as: what may become of it.
_RETYPES: dict[str, tuple[LiteralString, ...]] = {
    "integer": ("bigint", "bigint USING {c} * 10", "text USING {c}::text", "numeric(8, 2)"),
    "bigint": ("numeric(8, 2)", "int USING ({c} % 1000)::int"),
    "text": ("text USING upper({c})", "varchar(12) USING left({c}, 12)", "varchar(20) USING left({c}, 20)"),
    "character": ("varchar(30)", "text", "char(9) USING left({c}, 9)"),
    "numeric": ("numeric(8, 1)", "numeric(10, 2)"),
    "timestamp": ("timestamp(0)", "timestamp(6)", "date USING {c}::date"),
    "json": ("jsonb",),
    "jsonb": ("json",),
    "boolean": ("text USING {c}::text",),
    "mood": ("text USING {c}::text",),
    "date": ("timestamp(6)",),
}


class NothingToDoError(Exception):
    """The tables give no chance for this move."""


@dataclass(frozen=True)
class Hand:
    """What a move has at hand."""

    connection: Connection
    rng: Random
    tables: tuple[int, ...]
    """By oid: names change."""
    publication: str
    touched: list[int] = field(default_factory=list)
    """The tables that this transaction has looked at, for the journal."""

    def any(self, *, partitioned: bool | None = None) -> Now:
        """A table; the partitioned ones come last."""
        plain, roots = self.tables[:-PARTITIONED], self.tables[-PARTITIONED:]
        oid = self.pick(self.tables if partitioned is None else roots if partitioned else plain)
        self.touched.append(oid)
        return self.look(oid)

    def look(self, oid: int) -> Now:
        return look_at(self.connection, oid, self.publication)

    def pick(self, choices: Sequence[T]) -> T:
        if not choices:
            raise NothingToDoError
        return self.rng.choice(choices)


# -------------------------------------------------------------------------------------------------------------- rows


def insert(hand: Hand) -> Statements:
    table = hand.any()
    names = sql.SQL(", ").join(sql.Identifier(part.name) for part in table.written)
    rows = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(value(hand.connection, hand.rng, part) for part in table.written))
        for _ in range(hand.rng.choice((1, 1, 5, 30)))
    )
    return [sql.SQL("INSERT INTO {} ({}) VALUES {} ON CONFLICT DO NOTHING").format(table.place, names, rows)]


def _some(hand: Hand, table: Now) -> sql.Composable:
    """A few rows, which also a table without a key has."""
    return sql.SQL("(tableoid, ctid) IN (SELECT tableoid, ctid FROM {} OFFSET {} LIMIT {})").format(
        table.place, sql.Literal(hand.rng.randrange(80)), sql.Literal(hand.rng.choice((1, 1, 3, 20)))
    )


def update(hand: Hand) -> Statements:
    table = hand.any()
    part = hand.pick([part for part in table.written if part.name not in ("id", "k")])
    return [_update(table, part.name, value(hand.connection, hand.rng, part), _some(hand, table))]


def update_key(hand: Hand) -> Statements:
    """Among partitions a row may move."""
    table = hand.any()
    new = sql.Literal(hand.rng.randint(1, KEYS))
    row = sql.SQL("(tableoid, ctid) IN (SELECT tableoid, ctid FROM {} OFFSET {} LIMIT 1)").format(
        table.place, sql.Literal(hand.rng.randrange(80))
    )
    return [_update(table, hand.rng.choice(("id", "k")), new, row)]


def _update(table: Now, column: str, new: sql.Composable, rows: sql.Composable) -> sql.Composed:
    return sql.SQL("UPDATE {} SET {} = {} WHERE {}").format(table.place, sql.Identifier(column), new, rows)


def delete(hand: Hand) -> Statements:
    table = hand.any()
    return [sql.SQL("DELETE FROM {} WHERE {}").format(table.place, _some(hand, table))]


def truncate(hand: Hand) -> Statements:
    return [sql.SQL("TRUNCATE {}").format(hand.any().place)]


# ------------------------------------------------------------------------------------------------------------ shapes


def _alter(table: Now, what: LiteralString, **words: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ").format(table.place) + sql.SQL(what).format(**words)


def _unused(hand: Hand, table: Now) -> sql.Identifier:
    taken = {part.name for part in table.columns}
    return sql.Identifier(hand.pick([name for name in _COLUMN_NAMES if name not in taken]))


def add_column(hand: Hand) -> Statements:
    table, type_ = hand.any(), hand.pick(TYPES)
    name = _unused(hand, table)
    kind = hand.rng.random()
    if kind < 0.15:
        return [_alter(table, "ADD COLUMN {c} int GENERATED ALWAYS AS (id * 3) STORED", c=name)]
    if kind < 0.35:
        return [_alter(table, "ADD COLUMN {c} int DEFAULT 7", c=name)]
    return [_alter(table, "ADD COLUMN {c} {t}", c=name, t=sql.SQL(type_))]


def drop_column(hand: Hand) -> Statements:
    table = hand.any()
    return [_alter(table, "DROP COLUMN {c}", c=sql.Identifier(hand.pick(table.free).name))]


def drop_and_add_column(hand: Hand) -> Statements:
    """The same name, and perhaps the same type, but another column."""
    table = hand.any()
    name = sql.Identifier(hand.pick(table.free).name)
    return [
        _alter(table, "DROP COLUMN {c}", c=name),
        _alter(table, "ADD COLUMN {c} {t}", c=name, t=sql.SQL(hand.pick(TYPES))),
    ]


def rename_column(hand: Hand) -> Statements:
    table = hand.any()
    old = sql.Identifier(hand.pick(table.free).name)
    return [_alter(table, "RENAME COLUMN {old} TO {new}", old=old, new=_unused(hand, table))]


def swap_columns(hand: Hand) -> Statements:
    table = hand.any()
    if len(table.free) < 2:
        raise NothingToDoError
    one, other = (sql.Identifier(part.name) for part in hand.rng.sample(table.free, 2))
    rename: LiteralString = "RENAME COLUMN {old} TO {new}"
    between = sql.Identifier("between")
    return [_alter(table, rename, old=a, new=b) for a, b in ((one, between), (other, one), (between, other))]


def retype_column(hand: Hand) -> Statements:
    table = hand.any()
    part = hand.pick([part for part in table.free if not part.is_generated])
    new = hand.pick(_RETYPES.get(part.type.partition("(")[0].split()[0], ()))
    name = sql.Identifier(part.name)
    return [_alter(table, "ALTER COLUMN {c} TYPE {t}", c=name, t=sql.SQL(new).format(c=name))]


def set_expression(hand: Hand) -> Statements:
    table = hand.any()
    part = hand.pick([part for part in table.columns if part.is_generated])
    expression = sql.SQL("id * {}").format(sql.Literal(hand.rng.randint(2, 9)))
    return [_alter(table, "ALTER COLUMN {c} SET EXPRESSION AS ({e})", c=sql.Identifier(part.name), e=expression)]


def change_identity(hand: Hand) -> Statements:
    kind: LiteralString = hand.rng.choice(("FULL", "FULL", "DEFAULT"))
    return [_alter(hand.any(), "REPLICA IDENTITY {kind}", kind=sql.SQL(kind))]


def change_key(hand: Hand) -> Statements:
    """Drop the primary key, and mostly make another one; a partitioned table needs its own."""
    table = hand.any(partitioned=False)
    keys: tuple[LiteralString, ...] = ("id", "k", "id, k")
    add = _alter(table, "ADD PRIMARY KEY ({key})", key=sql.SQL(hand.pick(keys)))
    if table.primary_key is None:
        return [add]
    drop = _alter(table, "DROP CONSTRAINT {name}", name=sql.Identifier(table.primary_key))
    return [drop] if hand.rng.random() < 0.3 else [drop, add]


def rename_table(hand: Hand) -> Statements:
    return [_alter(hand.any(), "RENAME TO {name}", name=sql.Identifier(hand.pick(_TABLE_NAMES)))]


def swap_tables(hand: Hand) -> Statements:
    one, other = hand.any(), hand.any()
    if one.oid == other.oid or one.schema != other.schema:
        raise NothingToDoError
    first, second, between = (sql.Identifier(name) for name in (one.name, other.name, "between"))
    moved = sql.Identifier(one.schema, "between")
    return [
        _alter(one, "RENAME TO {name}", name=between),
        _alter(other, "RENAME TO {name}", name=first),
        sql.SQL("ALTER TABLE {} RENAME TO {}").format(moved, second),
    ]


def move_table(hand: Hand) -> Statements:
    table = hand.any()
    return [_alter(table, "SET SCHEMA {s}", s=sql.Identifier("aside" if table.schema == "public" else "public"))]


def add_label(hand: Hand) -> Statements:
    new = hand.pick([label for label in _LABELS if label not in labels(hand.connection)])
    return [sql.SQL("ALTER TYPE mood ADD VALUE {}").format(sql.Literal(new))]


def rename_label(hand: Hand) -> Statements:
    present = labels(hand.connection)
    new = hand.pick([label for label in _LABELS if label not in present])
    old = hand.pick(present)
    return [sql.SQL("ALTER TYPE mood RENAME VALUE {} TO {}").format(sql.Literal(old), sql.Literal(new))]


# -------------------------------------------------------------------------------------------------------- partitions


def _range(start: int) -> sql.Composable:
    return sql.SQL("FOR VALUES FROM ({}) TO ({})").format(sql.Literal(start), sql.Literal(start + LEAF_SPAN))


def _gap(hand: Hand, table: Now) -> int:
    """Where a range without a partition begins."""
    taken = {leaf.start for leaf in leaves_of(hand.connection, table.oid)}
    return hand.pick([start for start in range(1, KEYS + LEAF_SPAN, LEAF_SPAN) if start not in taken])


def _leaf_name(hand: Hand) -> sql.Identifier:
    return sql.Identifier(f"leaf_{hand.rng.getrandbits(40):x}")


def create_leaf(hand: Hand) -> Statements:
    table = hand.any(partitioned=True)
    made = sql.SQL("CREATE TABLE {} PARTITION OF {} {}")
    return [made.format(_leaf_name(hand), table.place, _range(_gap(hand, table)))]


def attach_leaf(hand: Hand) -> Statements:
    """With rows in it."""
    table = hand.any(partitioned=True)
    name, start = _leaf_name(hand), _gap(hand, table)
    written = sql.SQL(", ").join(sql.Identifier(part.name) for part in table.written if part.name in ("id", "k"))
    return [
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(name, table.place),
        sql.SQL("INSERT INTO {} ({}) SELECT g, g FROM generate_series({}, {}, 3) AS g").format(
            name, written, sql.Literal(start), sql.Literal(start + LEAF_SPAN - 1)
        ),
        _alter(table, "ATTACH PARTITION {leaf} {range}", leaf=name, range=_range(start)),
    ]


def _leaf(hand: Hand, table: Now) -> sql.Identifier:
    leaves = leaves_of(hand.connection, table.oid)
    if len(leaves) < 2:
        raise NothingToDoError
    return hand.pick(leaves).place


def detach_leaf(hand: Hand) -> Statements:
    table = hand.any(partitioned=True)
    return [_alter(table, "DETACH PARTITION {leaf}", leaf=_leaf(hand, table))]


def drop_leaf(hand: Hand) -> Statements:
    return [sql.SQL("DROP TABLE {}").format(_leaf(hand, hand.any(partitioned=True)))]


def truncate_leaf(hand: Hand) -> Statements:
    return [sql.SQL("TRUNCATE {}").format(_leaf(hand, hand.any(partitioned=True)))]


# ------------------------------------------------------------------------------------------------------- publication


def _own_publication(hand: Hand) -> sql.Identifier:
    """One client at a time changes it, so that it is never left empty."""
    hand.connection.execute("SELECT pg_advisory_xact_lock(%s)", (_PUBLICATION_LOCK,))
    return sql.Identifier(hand.publication)


def _published(hand: Hand, table: Now) -> sql.Composable:
    """The table as a publication may name it: with all, with some columns, with a filter."""
    chosen, kind = table.place, hand.rng.random()
    key = [part for part in table.columns if part.is_key or part.name in ("id", "k")]
    if kind < 0.4:
        return chosen
    if kind < 0.7:
        more = hand.rng.sample(table.free, hand.rng.randint(0, len(table.free)))
        names = sql.SQL(", ").join(sql.Identifier(part.name) for part in (*key, *more))
        return sql.SQL("{} ({})").format(chosen, names)
    return sql.SQL("{} WHERE (id > {})").format(chosen, sql.Literal(hand.rng.randint(1, KEYS // 2)))


def leave_publication(hand: Hand) -> Statements:
    name = _own_publication(hand)
    published = [oid for oid in hand.tables if hand.look(oid).is_published]
    if len(published) <= FEWEST_PUBLISHED:
        raise NothingToDoError
    oid = hand.pick(published)
    hand.touched.append(oid)
    return [sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, hand.look(oid).place)]


def enter_publication(hand: Hand) -> Statements:
    name = _own_publication(hand)
    table = hand.pick([now for now in map(hand.look, hand.tables) if not now.is_published])
    hand.touched.append(table.oid)
    return [sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, _published(hand, table))]


def publish_otherwise(hand: Hand) -> Statements:
    """Another filter or list of columns, at one commit."""
    name = _own_publication(hand)
    table = hand.pick([now for now in map(hand.look, hand.tables) if now.is_published])
    hand.touched.append(table.oid)
    return [
        sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, table.place),
        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, _published(hand, table)),
    ]


def publish_less(hand: Hand) -> Statements:
    kinds = hand.rng.choice(("insert", "insert, update", "insert, update, delete"))
    return [set_publish(_own_publication(hand), kinds)]


def publish_all(hand: Hand) -> Statements:
    return [set_publish(_own_publication(hand), "insert, update, delete, truncate")]


def set_publish(name: sql.Identifier, kinds: str) -> sql.Composed:
    return sql.SQL("ALTER PUBLICATION {} SET (publish = {})").format(name, sql.Literal(kinds))


Move = Callable[[Hand], Statements]
ROWS: dict[Move, float] = {insert: 30, update: 30, update_key: 8, delete: 8, truncate: 0.5}
CHANGES: dict[Move, float] = {
    add_column: 3,
    drop_column: 2,
    drop_and_add_column: 1,
    rename_column: 3,
    swap_columns: 1,
    retype_column: 3,
    set_expression: 1,
    change_identity: 1.5,
    change_key: 1.5,
    rename_table: 1,
    swap_tables: 1,
    move_table: 0.5,
    add_label: 0.7,
    rename_label: 0.7,
    create_leaf: 1,
    attach_leaf: 1,
    detach_leaf: 1,
    drop_leaf: 0.7,
    truncate_leaf: 0.7,
    leave_publication: 1,
    enter_publication: 1.5,
    publish_otherwise: 1,
    publish_less: 0.3,
    publish_all: 0.6,
}
