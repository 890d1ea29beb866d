"""All tables that are asked for, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.verifying import Verifiable
from walrelay.errors import ConfigError, LineageError, NotVerifiableError, OtherDestinationError, TableMissingError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.postgres.catalog import PublishedTable, published_tables
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.identity import source_id
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.sql import statement
from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore
from walrelay.stores.facts import DESTINATION
from walrelay.stores.names import known_name
from walrelay.verify.report import TableResult, VerifyReport
from walrelay.verify.table import Sides, verify_table


@dataclass(frozen=True)
class VerifyParts:
    """The pipeline whose work is looked at; it may run, here or elsewhere."""

    id: str
    source: PostgresSource
    destination: Destination
    store: PipelineStore
    log: str
    settings: CopySettings
    patience: float = 30.0
    arrives: Callable[[TableName], bool] = lambda _name: True
    """Whether a table of this name is not left out."""


def verify(
    parts: VerifyParts,
    tables: Collection[str] | None = None,
    *,
    repair: bool = False,
    finished: Callable[[TableResult], None] = lambda _: None,
) -> VerifyReport:
    """Compare the tables of the publication, or those named, each exactly; `finished` is told of each at once, from
    several threads."""
    destination = parts.destination
    if not isinstance(destination, Verifiable):
        raise NotVerifiableError(f"the destination {destination.name} cannot be compared with the source")
    log = LogReader(parts.log)
    lineage = log.lineage()
    with connect(parts.source, application="walrelay verify") as connection:
        published = published_tables(connection, parts.source.publication)
        chosen = _chosen([table for table in published if parts.arrives(table.name)], tables)
        identity = source_id(connection)
        leaves_out = _leaves_out(connection, parts.source.publication)
    if identity is not None and identity.partition("/")[0] != lineage.system_identifier:
        raise LineageError(
            f"the log is of {lineage}; this source is the system {identity.partition('/')[0]}",
            hint="Give the source, and the --state, that belong together.",
        )
    context = DestinationContext(
        parts.id,
        parts.settings,
        store=parts.store,
        mode="verify",
        source_id=identity,
        source_name=parts.source.location,
        pipeline_name=known_name(parts.store),
    )
    copies = _first_look(destination, context, parts.store)
    sides = Sides(parts.source, destination, context, log, parts.store, copies, leaves_out, parts.patience)

    def compare(table: PublishedTable) -> TableResult:
        result = verify_table(sides, table, repair=repair)
        finished(result)
        return result

    # Most of the time goes by waiting: for the log, for the destination's next batch.
    with ThreadPoolExecutor(parts.settings.max_tables, thread_name_prefix="walrelay-verify") as pool:
        return VerifyReport(tuple(pool.map(compare, chosen)))


def _chosen(published: list[PublishedTable], names: Collection[str] | None) -> list[PublishedTable]:
    by_name = {table.name: table for table in published}
    if not names:
        return [by_name[name] for name in sorted(by_name)]
    wanted = []
    for text in names:
        table = by_name.get(_name(text))
        if table is None:
            raise TableMissingError(
                f"the publication has no table {text}", hint="Give schema.table as it is published."
            )
        wanted.append(table)
    return wanted


def _leaves_out(connection: Connection, publication: str) -> tuple[str, ...]:
    with talking("reading the publication"):
        row = connection.execute(statement("publication"), {"publication": publication}).fetchone()
    kinds = ("inserts", "updates", "deletes", "truncates")
    return () if row is None else tuple(kind for kind in kinds if not getattr(row, kind))


def _first_look(
    destination: Verifiable, context: DestinationContext, store: PipelineStore
) -> dict[TableId, Lsn | None]:
    """Which copies it holds; refuses another destination than the pipeline's."""
    expected = store.get_facts(DESTINATION).get(WHOLE_PIPELINE)
    with destination.looking(context) as look:
        found, copies = look.identity(), dict(look.copies())
    if expected is not None and found != expected["id"]:
        raise OtherDestinationError(
            f"this is another destination than the one that the pipeline keeps current, {expected['place']}",
            hint="Give that one.",
        )
    return copies


def _name(text: str) -> TableName:
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), hint="Give schema.table as it is published.") from error
