"""A Postgres database as a source: its publication's tables, a replication slot, and a log that capture fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from threading import Event

from walrelay.capture.process import CaptureProcess
from walrelay.config.choices import Ack
from walrelay.config.settings import SLOT_TIMEOUT, CaptureSettings
from walrelay.errors import SourceError
from walrelay.log.identity import read_lineage
from walrelay.log.storage import open_storage
from walrelay.model.names import TableId, TableName
from walrelay.model.notice import Notice
from walrelay.postgres.catalog import published_tables, storage_of
from walrelay.postgres.connection import connect
from walrelay.postgres.identity import source_id, table_names
from walrelay.postgres.slot import OWN_PREFIX, flushed_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.source_migrations import install
from walrelay.postgres.types import enum_labels
from walrelay.sources.base import Contents, FeedOrder
from walrelay.sources.feed import Feed
from walrelay.sources.followed_log import FollowedLog

RETAIN_AGE = timedelta(days=7)
"""How long a pipeline's log keeps what the destination has: enough to replay into last week's backup of it."""


@dataclass(frozen=True)
class PublishedDatabase:
    """`follow`: somebody else's capture fills the log. `migrate`: the DDL trigger is installed. Without a `slot` each
    pipeline gets one of its own."""

    database: PostgresSource
    slot: str | None
    capture: CaptureSettings
    follow: bool = False
    migrate: bool = False

    @property
    def location(self) -> str:
        return self.database.location

    def prepare(self, notify: Callable[[str], None]) -> None:
        if not self.migrate:
            return
        with connect(self.database, application="walrelay migrate-source") as connection:
            action = install(connection)
        if action != "unchanged":
            notify(Notice("ddl trigger of the source", f"the DDL trigger on the source is {action}", action=action))

    def contents(self, stopping: Event, *, sizes: bool = False) -> Contents:
        with connect(self.database, application="walrelay discovery", stopping=stopping) as connection:
            tables = published_tables(connection, self.database.publication)
            storage = storage_of(connection, [table.id for table in tables]) if sizes else {}
            return Contents(tuple(tables), source_id(connection), flushed_lsn(connection), storage)

    def names(self, tables: Collection[TableId], stopping: Event) -> dict[TableId, TableName] | None:
        try:
            with connect(self.database, application="walrelay names", stopping=stopping) as connection:
                return table_names(connection, tables)
        except SourceError:
            return None

    def enum_labels(self, types: Collection[int], stopping: Event) -> dict[int, tuple[str, ...]] | None:
        try:
            with connect(self.database, application="walrelay types", stopping=stopping) as connection:
                return enum_labels(connection, types)
        except SourceError:
            return None

    def copier(self) -> PostgresSource:
        return self.database

    def feed(self, order: FeedOrder) -> Feed:
        if self.follow:
            patience = SLOT_TIMEOUT.total_seconds() if order.ends else None
            return FollowedLog(order.log, patience=patience, notify=order.notify)
        return CaptureProcess(
            self.database,
            slot=self.slot_of(order),
            log=order.log,
            settings=self._capture_for(order),
            notify=order.notify,
        )

    def slot_of(self, order: FeedOrder) -> str:
        """The one that was asked for, the log's own, or one that no other pipeline has."""
        if self.slot is not None:
            return self.slot
        lineage = read_lineage(open_storage(order.log))
        return lineage.slot if lineage is not None else own_slot(self.database.publication, order.pipeline)

    def _capture_for(self, order: FeedOrder) -> CaptureSettings:
        """One policy for both roads, unless capture was given one of its own."""
        given, copies = self.capture, order.settings
        ack: Ack = given.ack or ("destination" if open_storage(order.log).local else "log")
        return given.model_copy(
            update={
                "ack": ack,
                "retain_age": given.retain_age or RETAIN_AGE,
                "slot_timeout": given.slot_timeout or (SLOT_TIMEOUT if order.ends else None),
            }
            | {
                name: getattr(copies, name)
                for name in ("special_values", "stall_timeout")
                if name not in given.model_fields_set
            }
        )


def own_slot(publication: str, pipeline: str) -> str:
    """A slot's name made from the publication's and the pipeline's, which is unlike every other one."""
    plain = re.sub(r"[^a-z0-9_]", "_", publication.lower())[:40]
    return f"{OWN_PREFIX}{plain}_{sha256(pipeline.encode()).hexdigest()[:8]}"
