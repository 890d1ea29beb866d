"""A pipeline's store, for commands: in the directory that `replicate --state` uses, or in a Postgres."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from walrelay.errors import ConfigError, StateMissingError
from walrelay.stores.base import PipelineStore

STATE_FILE = "state.sqlite"
LOG_DIRECTORY = "log"


@dataclass(frozen=True)
class Place:
    """Where a pipeline's state is. `url` (of a Postgres) wins over the directory."""

    state: Path
    pipeline: str | None = None
    """None is the only one that is there."""
    log: str | None = None
    """None is `log` in the directory."""
    url: str | None = None

    @property
    def location(self) -> str:
        """Of the change log."""
        return self.log or log_of(self.state)

    def pipelines(self) -> list[str]:
        """Whose state is there."""
        if self.url is not None:
            from walrelay.stores.postgres import pipelines_at

            return pipelines_at(self.url)
        file = self.state / STATE_FILE
        if not file.exists():
            raise StateMissingError(f"there is no pipeline's state in {self.state}")
        return pipelines_in(file)

    def only_pipeline(self) -> str:
        """The pipeline that was named, or the only one."""
        found = self.pipelines()
        if self.pipeline is not None:
            if self.pipeline not in found:
                known = ", ".join(found) or "none"
                raise ConfigError(f"{self._shown} has no pipeline {self.pipeline}", hint=f"It has: {known}.")
            return self.pipeline
        if len(found) == 1:
            return found[0]
        known = ", ".join(found) or "none"
        raise ConfigError(f"{self._shown} has {len(found)} pipelines", hint=f"Name one with --id: {known}.")

    @property
    def _shown(self) -> str:
        return str(self.state) if self.url is None else "the store"

    @contextmanager
    def opened(self) -> Iterator[PipelineStore]:
        """The store, with what it remembers of the tables loaded. Raises when there is none."""
        pipeline = self.only_pipeline()
        store = open_store(self.state, self.url, pipeline)
        try:
            store.load_table_replication_states()
            store.load_table_mappings()
            yield store
        finally:
            store.close()


def open_store(state: Path, url: str | None, pipeline: str) -> PipelineStore:
    """The store of a pipeline, made when it is not there."""
    if url is not None:
        from walrelay.stores.postgres import PostgresStore

        return PostgresStore(url, pipeline)
    from walrelay.stores.sqlite import SqliteStore

    return SqliteStore(state / STATE_FILE, pipeline)


def log_of(state: Path) -> str:
    """Where a pipeline's log is unless it was put elsewhere."""
    return str(state / LOG_DIRECTORY)


def pipelines_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT pipeline_id FROM pipelines ORDER BY 1")]
