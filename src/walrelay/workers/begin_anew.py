"""The way back when the slot, the log or the destination is not the one that is remembered: only what must be is made
anew, and nothing of it by itself (`--begin-anew`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from walrelay.errors import ConfigError, OtherDestinationError, WalrelayError
from walrelay.log.identity import IDENTITY
from walrelay.log.manifest import MANIFEST
from walrelay.log.storage import open_storage
from walrelay.model.notice import Notice
from walrelay.model.phases import Init
from walrelay.model.progress import Apply
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import drop_slot, wait_until_free
from walrelay.postgres.source import PostgresSource
from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore
from walrelay.stores.facts import DESTINATION


def begin_anew(
    error: WalrelayError,
    *,
    source: PostgresSource,
    slot: str,
    log: str,
    store: PipelineStore,
    notify: Callable[[str], None],
) -> None:
    """Take away what `error` says cannot go on; the next start makes it anew, and copies the tables again."""
    notify(
        Notice.warning(
            "what was kept is lost", f"{error.message} ({error.code})", code=error.code, message=error.message
        )
    )
    with store.acquire_pipeline_lock():
        if isinstance(error, OtherDestinationError):
            store.store_fact(WHOLE_PIPELINE, DESTINATION, None)
        else:
            aside = _set_aside(log)
            _drop(source, slot)
            store.delete_durable_progress(Apply())
            said = f"beginning anew, with another log and slot{f'; the old log is in {aside}' if aside else ''}"
            notify(Notice("beginning anew", said, slot=slot, old_log=None if aside is None else str(aside)))
        tables = store.get_table_replication_states()
        store.update_table_replication_states({table: Init() for table in tables})


def _set_aside(log: str) -> Path | None:
    """Where the old log is now; None when there was none."""
    storage = open_storage(log)
    if not storage.local:
        if storage.list("") or storage.list(MANIFEST):
            raise ConfigError(
                "a log on an object store is not moved", hint="Give another --log URL together with --begin-anew."
            )
        return None
    here = Path(storage.location(IDENTITY)).parent
    if not here.exists():
        return None
    number = 1
    while (aside := here.with_name(f"{here.name}.set-aside-{number}")).exists():
        number += 1
    here.rename(aside)
    return aside


def _drop(source: PostgresSource, slot: str) -> None:
    with connect(source, application="walrelay begin-anew") as connection:
        wait_until_free(connection, slot)
        drop_slot(connection, slot)
