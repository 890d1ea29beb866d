"""At a pipeline's start: whether the options of its tables can be honoured, and whether what was copied under others
must be copied again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Event

from walrelay.config.choices import UnknownTypes
from walrelay.model.names import TableId, TableName
from walrelay.model.notice import Notice
from walrelay.model.phases import Ready, SyncDone
from walrelay.postgres.catalog import PublishedTable, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.shaping.failures import TableOptionError
from walrelay.shaping.shaping import Shaping
from walrelay.stores.base import StateStore
from walrelay.stores.facts import SHAPED, wish

UNAVAILABLE = {
    "on_removed": ("drop", "a table that leaves the publication stays in the destination in this version"),
}
"""Options of which this version does not know a value: that is said, and never passed over."""


def check_options(shaping: Shaping, names: Iterable[TableName]) -> None:
    """Raises for options that are not there, and for tables that would be one at the destination."""
    seen: dict[TableName, TableName] = {}
    for name in names:
        options = shaping.options(name)
        for option, (value, why) in UNAVAILABLE.items():
            if getattr(options, option) == value:
                raise _refused(name, option, f"{why}", f"Leave out {option}: {value}.")
        if options.special_values is not None:
            hint = "Set special_values of the pipeline, which is for all tables."
            raise _refused(name, "special_values", "a table has no policy of its own in this version", hint)
        shaped = shaping.shaped_name(name)
        if shaped in seen:
            raise _refused(name, "rename", f"{seen[shaped]} would be called {shaped} as well")
        seen[shaped] = name


def _refused(name: TableName, option: str, why: str, hint: str | None = None) -> TableOptionError:
    return TableOptionError(f"{option} of {name}: {why}", hint=hint, context={"table": str(name), "option": option})


def check_tables(
    shaping: Shaping,
    source: PostgresSource,
    tables: Collection[PublishedTable],
    unknown_types: UnknownTypes,
    stopping: Event,
) -> None:
    """Raises for what cannot be done to the tables as they are now."""
    check_options(shaping, (table.name for table in tables))
    shaped = [table for table in tables if shaping.shapes(table.name)]
    if not shaped:
        return
    with connect(source, application="walrelay options", stopping=stopping) as connection:
        schemas = [read_schema(connection, one, unknown_types, publication=source.publication) for one in shaped]
    for schema in schemas:
        shaping.shaped(schema)


def remember(store: StateStore, shaping: Shaping, table: TableId, name: TableName) -> None:
    """Under which options the table's rows came to the destination."""
    made = shaping.fingerprint(name)
    known = store.get_facts(SHAPED).get(table)
    if made or known:
        body = {"name": [name.schema, name.name], "fingerprint": made, "options": shaping.shapes(name)}
        store.store_fact(table, SHAPED, body)


def recognise(store: StateStore, shaping: Shaping, tables: Mapping[TableId, TableName]) -> None:
    """Tables that were renamed since their rows came keep the options of their old names, or are refused later."""
    for table, fact in store.get_facts(SHAPED).items():
        if table in tables and tables[table] != TableName(*fact["name"]):
            shaping.bind({table: TableName(*fact["name"])})


def agree(
    store: StateStore, shaping: Shaping, tables: Mapping[TableId, TableName], notify: Callable[[str], None]
) -> None:
    """Have tables copied again whose rows came under other options than are given now."""
    facts, phases = store.get_facts(SHAPED), store.get_table_replication_states()
    for table, name in tables.items():
        fact = facts.get(table)
        is_renamed = fact is not None and TableName(*fact["name"]) != name
        if is_renamed or not isinstance(phases.get(table), Ready | SyncDone):
            continue
        if (fact["fingerprint"] if fact is not None else "") != shaping.fingerprint(name):
            said = f"{name} is copied again: its options are others than those that its rows came under"
            notify(Notice("table is copied again", said, table=str(name), message="its options are others now"))
            wish(store, table, "resync")
