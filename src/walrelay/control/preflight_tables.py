"""Checks of the publication and its tables. Each looks at the facts and yields what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from psycopg import sql

from walrelay.control.preflight_facts import (
    GENERATED_PUBLISHED_FROM,
    ColumnFacts,
    Facts,
    LeafFacts,
    TableFacts,
)
from walrelay.control.preflight_report import Finding, note, passed, problem, warning
from walrelay.decode.registry import is_known

_NAMED_AT_MOST = 5
_FOREIGN = "f"
_IDENTITY_WORDS = {"d": "default", "n": "nothing", "f": "full", "i": "index"}


def publication(facts: Facts) -> Iterator[Finding]:
    failure = facts.publication_error
    if failure is not None:
        yield problem("publication", failure.message, failure.hint)
    else:
        count = len(facts.tables)
        yield passed("publication", f"{facts.publication} has {count} table{'' if count == 1 else 's'}")


def operations(facts: Facts) -> Iterator[Finding]:
    if not facts.operations:
        return
    missing = [name for name, published in facts.operations.items() if not published]
    if not missing:
        yield passed("publish_operations", ", ".join(facts.operations))
        return
    yield warning(
        "publish_operations",
        f"{facts.publication} does not publish {', '.join(missing)}: the copy will not follow them",
        f"ALTER PUBLICATION {facts.publication} SET (publish = '{', '.join(facts.operations)}');",
    )


def schema_usage(facts: Facts) -> Iterator[Finding]:
    role = facts.server.role
    closed = [leaf for leaf in _all_stored(facts) if not leaf.schema_usage]
    if closed:
        schemas = _once(leaf.schema for leaf in closed)
        message = f"{role} may not enter {'schema' if len(schemas) == 1 else 'schemas'} {_some(schemas)}"
        remedy = f"GRANT USAGE ON SCHEMA {', '.join(schemas)} TO {role};"
        yield problem("schema_usage", message, remedy, _once(leaf.name for leaf in closed))
    elif facts.tables:
        yield passed("schema_usage", f"{role} may enter the tables' schemas")


def select_right(facts: Facts) -> Iterator[Finding]:
    """What counts is what the copy reads: the leaves of a partitioned table, not the parent."""
    role = facts.server.role
    lacking = [
        (leaf, columns) for table in facts.tables for leaf in _stored(table) if (columns := _unreadable(table, leaf))
    ]
    names = _once(leaf.name for leaf, _ in lacking)
    if names:
        remedy = "\n".join(_grants(lacking, role))
        yield problem("select_right", f"{role} may not read {_some(names)}", remedy, names)
    elif facts.tables:
        yield passed("select_right", f"{role} may read every table")


def _unreadable(table: TableFacts, leaf: LeafFacts) -> list[str]:
    read = {column.name for column in table.columns if column.read} | {"ctid"}
    return [name for name in leaf.unreadable if name in read]


def _grants(lacking: list[tuple[LeafFacts, list[str]]], role: str) -> Iterator[str]:
    """The whole table, except where somebody had chosen columns: there, those that are missing."""
    for leaf, columns in lacking:
        chosen = sql.SQL(", ").join(map(sql.Identifier, columns)).as_string(None)
        yield f"GRANT SELECT{f' ({chosen})' if leaf.partly_readable else ''} ON {leaf.name} TO {role};"


def row_security(facts: Facts) -> Iterator[Finding]:
    role = facts.server.role
    filtered = _once(leaf.name for leaf in _all_stored(facts) if leaf.row_security)
    if filtered:
        yield problem(
            "row_security",
            f"row-level security would hide rows of {_some(filtered)} from {role}",
            f"ALTER ROLE {role} BYPASSRLS; or copy as the tables' owner, without FORCE ROW LEVEL SECURITY.",
            filtered,
        )
    elif facts.tables:
        yield passed("row_security", "hides no rows")


def replica_identity(facts: Facts) -> Iterator[Finding]:
    """Postgres refuses to change a published row that the stream could not name (CheckCmdReplicaIdentity)."""
    changed = [name.upper() for name in ("update", "delete") if facts.operations.get(name)]
    nameless = _once(leaf.name for leaf in _all_stored(facts) if leaf.identity != "f" and not leaf.replica_key)
    if changed and nameless:
        yield warning(
            "replica_identity",
            f"{' and '.join(changed)} fail on the source for want of a replica identity: {_some(nameless)}",
            "Add a primary key that is not deferrable, or:\n"
            + "\n".join(f"ALTER TABLE {t} REPLICA IDENTITY FULL;" for t in nameless),
            nameless,
        )
    unpublished = _by_table(facts, lambda table: _unpublished_identity(table, facts.server.version))
    if changed and unpublished:
        yield warning(
            "replica_identity",
            f"{' and '.join(changed)} fail on the source since columns of the replica identity"
            f" are not published: {_described(unpublished)}",
            "Publish these columns too, or choose another REPLICA IDENTITY for the table.",
            unpublished,
        )
    if facts.tables and not (changed and (nameless or unpublished)):
        yield passed("replica_identity", "suits what is published")


def _unpublished_identity(table: TableFacts, version: int) -> list[str]:
    identity: set[str] = set()
    for leaf in _stored(table):
        identity.update(leaf.replica_key or ())
        if leaf.identity == "f":
            identity.update(column.name for column in table.columns)
    # Up to 17, generated columns were never published and nobody minded.
    return [
        column.name
        for column in table.columns
        if column.name in identity
        and not column.published
        and (version >= GENERATED_PUBLISHED_FROM or not column.generated)
    ]


def leaf_identities(facts: Facts) -> Iterator[Finding]:
    """Under its root's name a partition's changes are looked for by the root's key (publish_via_partition_root)."""
    if facts.odd_leaves and (facts.operations.get("update") or facts.operations.get("delete")):
        yield problem(
            "leaf_identities",
            f"changes of partitions cannot be followed: {_some([str(leaf) for leaf in facts.odd_leaves])}",
            "\n".join(leaf.remedy for leaf in facts.odd_leaves),
            [leaf.name for leaf in facts.odd_leaves],
        )


def filtered_values(facts: Facts) -> Iterator[Finding]:
    """An update that brings a row into a row filter arrives as an insert, without large values that did not change."""
    unsent = _by_table(facts, _may_come_unsent) if facts.operations.get("update") else {}
    if unsent:
        stored = _once(
            leaf.name for t in facts.tables if t.name in unsent for leaf in _stored(t) if leaf.identity != "f"
        )
        yield warning(
            "filtered_values",
            "a row that an update brings into the publication's row filter comes without its large values, and the"
            f" table then has to be copied again: {_described(unsent)}",
            "\n".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL;" for name in stored),
            unsent,
        )


def _may_come_unsent(table: TableFacts) -> list[str]:
    named = [set(leaf.replica_key or ()) for leaf in _stored(table) if leaf.identity != "f"]
    if not table.has_row_filter or not named:
        return []
    always = set.intersection(*named)
    return [c.name for c in table.columns if c.published and c.may_be_toasted and c.name not in always]


def primary_key(facts: Facts) -> Iterator[Finding]:
    """A table may do without; its rows are then told apart by its replica identity."""
    keyless = {
        table.name: _once(f"identity {_IDENTITY_WORDS[leaf.identity]}" for leaf in table.leaves)
        for table in facts.tables
        if not any(column.in_key for column in table.columns)
    }
    if keyless:
        yield note(
            "primary_key",
            f"none on {_described(keyless)}; updates and deletes are matched by the replica identity",
            "A primary key that is not deferrable makes this exact and quick.",
            keyless,
        )
    elif facts.tables:
        yield passed("primary_key", "every table has one")


def key_columns(facts: Facts) -> Iterator[Finding]:
    left_out = _by_table(facts, lambda table: [c.name for c in table.columns if c.in_key and not c.published])
    if left_out:
        yield warning(
            "key_columns",
            f"part of the primary key is not published, so the copy has no key: {_described(left_out)}",
            "Name these columns in the publication's column list, or publish all columns.",
            left_out,
        )
    elif facts.tables:
        yield passed("key_columns", "all are published")


def generated_columns(facts: Facts) -> Iterator[Finding]:
    silent = _by_table(facts, _generated_left_out)
    if not silent:
        return
    remedy = "The destination can compute them."
    stored = any(c.generated == "s" for table in facts.tables if table.name in silent for c in table.columns)
    if stored and facts.server.version >= GENERATED_PUBLISHED_FROM:
        remedy = f"ALTER PUBLICATION {facts.publication} SET (publish_generated_columns = stored);"
    yield note("generated_columns", f"not published: {_described(silent)}", remedy, silent)


def _generated_left_out(table: TableFacts) -> list[str]:
    """None where another column is left out as well: somebody wrote a list, and left them out on purpose."""
    if any(not column.published and not column.generated for column in table.columns):
        return []
    return [column.name for column in table.columns if not column.published]


def foreign_partitions(facts: Facts) -> Iterator[Finding]:
    found = _once(leaf.name for table in facts.tables for leaf in table.leaves if leaf.kind == _FOREIGN)
    if found:
        yield problem(
            "foreign_partitions",
            f"foreign tables as partitions, whose rows are out of reach: {_some(found)}",
            "Detach them, or publish the other partitions alone.",
            found,
        )


def column_types(facts: Facts) -> Iterator[Finding]:
    unknown = _by_table(facts, lambda table: [f"{c.name} {c.type}" for c in table.columns if _arrives_as_bytes(c)])
    if unknown:
        yield note(
            "column_types",
            f"types without a decoder arrive as the bytes Postgres gives: {_described(unknown)}",
            "Set unknown_types to 'text' to have their text instead.",
            unknown,
        )
    elif facts.tables:
        yield passed("column_types", "every type has a decoder")


def _arrives_as_bytes(column: ColumnFacts) -> bool:
    return column.published and column.type.has_binary and not is_known(column.type)


def _stored(table: TableFacts) -> Iterator[LeafFacts]:
    return (leaf for leaf in table.leaves if leaf.kind != _FOREIGN)


def _all_stored(facts: Facts) -> Iterator[LeafFacts]:
    return (leaf for table in facts.tables for leaf in _stored(table))


def _by_table(facts: Facts, columns_of: Callable[[TableFacts], list[str]]) -> dict[str, list[str]]:
    """The tables for which `columns_of` has something to name."""
    return {table.name: columns for table in facts.tables if (columns := columns_of(table))}


def _described(columns_by_table: Mapping[str, Sequence[str]]) -> str:
    return _some([f"{t} ({', '.join(cs)})" if cs else t for t, cs in columns_by_table.items()])


def _some(names: Sequence[str]) -> str:
    """The names, or the first few of many; a finding's `tables` has them all."""
    rest = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
