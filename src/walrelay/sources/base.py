"""The source contract: what a pipeline asks of where its rows and changes come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol, runtime_checkable

from walrelay.config.settings import CopySettings
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.postgres.catalog import PublishedTable, TableStorage
from walrelay.postgres.source import PostgresSource
from walrelay.sources.feed import Feed


@dataclass(frozen=True)
class Contents:
    """What a source has at a moment."""

    tables: tuple[PublishedTable, ...]
    identity: str | None
    """Which one it is, wherever it is found; None where it does not say."""
    head: Lsn
    """Every change that was committed by now ends up to here."""
    storage: Mapping[TableId, TableStorage] = field(default_factory=dict)
    """How large the tables are, where that was asked for."""


@dataclass(frozen=True)
class FeedOrder:
    """What a pipeline wants of a feed."""

    log: str
    settings: CopySettings
    ends: bool
    """Whether the pipeline ends once it has caught up: then nobody waits for ever."""
    notify: Callable[[str], None] = lambda _message: None
    pipeline: str = "walrelay"
    """Whose it is: a name unlike every other pipeline's. What the source makes for it is named after that."""


@runtime_checkable
class Source(Protocol):
    """Where rows and changes come from. What a pipeline relies on:

    - **Tables have ids** that stay when their names change.
    - **One order.** Its changes have positions that only grow, the same whoever reads them and however often.
    - **Two roads.** `feed` fills a change log, with whole transactions; `copier` is who can be asked for the rows as
      they are now. Without one, rows come by the feed alone.
    - **Errors** are those of `walrelay.errors`; what is `retryable` is tried again.
    """

    @property
    def location(self) -> str:
        """Where it is, for people; no secret in it."""

    def prepare(self, notify: Callable[[str], None]) -> None:
        """Whatever has to be there before changes are fed, and was asked for. Idempotent."""

    def contents(self, stopping: Event, *, sizes: bool = False) -> Contents:
        """Which tables there are now; raises when there is none."""

    def names(self, tables: Collection[TableId], stopping: Event) -> dict[TableId, TableName] | None:
        """What these tables are called now, without those that are gone; None when it cannot be asked."""

    def enum_labels(self, types: Collection[int], stopping: Event) -> dict[int, tuple[str, ...]] | None:
        """The labels of these enums now, by their types' ids; None when it cannot be asked."""

    def copier(self) -> PostgresSource | None:
        """Whom tasks ask for rows, under one snapshot a table."""

    def feed(self, order: FeedOrder) -> Feed:
        """What fills the log, or only follows it; not started yet."""
