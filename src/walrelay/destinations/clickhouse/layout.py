"""SQL for the two halves of a table: the one behind, which holds versions of rows, and the view, which shows them.

With a key, the last version of each key counts (`ReplacingMergeTree`), and a deleted one hides the row. Without one
each change has a place of its own, and adds a row or takes one away (`_sign`); what is shown is what they come to. In
both, what comes twice is the same as what came once.
"""

from __future__ import annotations

from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import declared, literal, quoted
from walrelay.destinations.clickhouse.facts import Facts, Stored
from walrelay.destinations.clickhouse.names import IS_NULL

VERSION, DELETED, SIGN, ROW = "_version", "_deleted", "_sign", "_row"
_COUNT = "_count"


def definitions(facts: Facts) -> list[str]:
    """The columns of a user's in storage."""
    made = []
    for one in facts.columns:
        made += column_definitions(one, of_key=one.name in facts.key)
    return made


def column_definitions(one: Stored, *, of_key: bool) -> list[str]:
    made = [f"{one.name} {declared(one.held.type, of_key=of_key)}"]
    return [*made, f"{one.mark} Bool"] if one.marked else made


def names(facts: Facts) -> list[str]:
    """The same columns by their names, marks with them."""
    return [name for one in facts.columns for name in ([one.name, one.mark] if one.marked else [one.name])]


def create_storage(server: Server, facts: Facts) -> str:
    columns = definitions(facts)
    if facts.key:
        own = [f"{VERSION} UInt128", f"{DELETED} UInt8"]
        engine, order = f"ReplacingMergeTree({VERSION}, {DELETED})", ", ".join(facts.key)
    else:
        own = [f"{ROW} UInt64", f"{VERSION} UInt128", f"{SIGN} Int8"]
        own.append(f"INDEX {ROW}s {ROW} TYPE bloom_filter GRANULARITY 1")
        engine, order = "ReplacingMergeTree", f"{VERSION}, {SIGN}"
    return (
        f"CREATE TABLE {server.place(facts.storage)} ({', '.join([*columns, *own])}) ENGINE = {engine}"
        # A part of a composite key may be NULL. Tombstones are removed when we say so, see maintenance.py.
        f" ORDER BY ({order}) SETTINGS allow_nullable_key = 1, allow_experimental_replacing_merge_with_cleanup = 1"
        f" COMMENT {literal('behind a view, which shows the current rows')}"
    )


def create_view(server: Server, name: str, facts: Facts, *, marks: bool) -> str:
    """In one step, in place of whatever the name showed before."""
    shown = []
    for one in facts.columns:
        shown.append(f"{one.name} AS {quoted(one.held.name)}")
        if one.marked and marks:
            shown.append(f"{one.mark} AS {quoted(one.held.name + IS_NULL)}")
    return (
        f"CREATE OR REPLACE VIEW {server.place(name)} AS SELECT {', '.join(shown)} FROM {current(server, facts)}"
        f" COMMENT {literal(facts.comment())}"
    )


def current(server: Server, facts: Facts) -> str:
    """SQL for the rows that are there now, under their names in storage."""
    storage = f"{server.place(facts.storage)} FINAL"
    if facts.key:
        return storage
    return f"({counted(facts, storage)} HAVING {_COUNT} > 0) ARRAY JOIN range(toUInt64({_COUNT})) AS _nth"


def counted(facts: Facts, source: str, where: str = "") -> str:
    """How often each row of a table without a key is there."""
    columns = ", ".join(names(facts))
    return f"SELECT {columns}, sum({SIGN}) AS {_COUNT} FROM {source}{where} GROUP BY {columns}"


def row_hash(facts: Facts) -> str:
    """SQL for a number by which equal rows are found; rows that are not equal may share it."""
    return f"sipHash64(tuple({', '.join(names(facts))}))"


def version(lsn: str, ordinal: str) -> str:
    """SQL for the place of a change, as a version."""
    return f"bitOr(bitShiftLeft(toUInt128({lsn}), 64), toUInt128({ordinal}))"
