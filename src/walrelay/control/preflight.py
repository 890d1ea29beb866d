"""Say what is missing on the source before anything is copied, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from walrelay.control import preflight_server as server
from walrelay.control import preflight_tables as tables
from walrelay.control.preflight_facts import OLD_TRANSACTION, Facts, read_facts
from walrelay.control.preflight_report import Finding, Report, Severity
from walrelay.errors import WalrelayError
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource

__all__ = ["Finding", "Mode", "Report", "Severity", "preflight"]

Mode = Literal["copy", "changes", "both"]
"""What the pipeline is going to do with the source."""

_ALL: tuple[Mode, ...] = ("copy", "changes", "both")
_COPIES: tuple[Mode, ...] = ("copy", "both")
_STREAMS: tuple[Mode, ...] = ("changes", "both")
_ONLY_COPIES: tuple[Mode, ...] = ("copy",)


@dataclass(frozen=True, slots=True)
class _Check:
    """A question to the facts, and the modes for which it matters."""

    run: Callable[[Facts], Iterable[Finding]]
    modes: tuple[Mode, ...] = _ALL


CHECKS = (
    _Check(server.connection),
    _Check(server.server_version),
    _Check(server.pooler),
    _Check(server.standby_when_copying, _ONLY_COPIES),
    _Check(server.standby_when_streaming, _STREAMS),
    _Check(server.wal_level_when_copying, _ONLY_COPIES),
    _Check(server.wal_level_when_streaming, _STREAMS),
    _Check(server.replication_slots, _STREAMS),
    _Check(server.open_transactions, _STREAMS),
    _Check(server.wal_senders, _STREAMS),
    _Check(server.replication_right, _STREAMS),
    _Check(server.slot_wal_keep_size, _STREAMS),
    _Check(server.idle_slot_timeout, _STREAMS),
    _Check(server.ddl_trigger, _STREAMS),
    _Check(tables.publication),
    _Check(tables.operations, _STREAMS),
    _Check(tables.schema_usage, _COPIES),
    _Check(tables.select_right, _COPIES),
    _Check(tables.row_security, _COPIES),
    _Check(tables.replica_identity),  # also for a copy: the publication exists, so the source refuses already
    _Check(tables.leaf_identities, _STREAMS),
    _Check(tables.filtered_values, _STREAMS),
    _Check(tables.primary_key, _STREAMS),
    _Check(tables.key_columns),
    _Check(tables.generated_columns),
    _Check(tables.foreign_partitions),
    _Check(tables.column_types),
)


def preflight(source: PostgresSource, *, mode: Mode = "both", old: timedelta = OLD_TRANSACTION) -> Report:
    """Ask the source and judge its answers. Changes nothing there; a source that refuses us is a finding. Transactions
    that are open for longer than `old` are named."""
    try:
        with closing(connect(source, application="walrelay preflight")) as connection:
            facts = read_facts(connection, source.publication, source.location, old=old)
    except WalrelayError as error:
        return Report.refused(source.location, error)
    findings = (finding for check in CHECKS if mode in check.modes for finding in check.run(facts))
    return Report(source.location, facts.server.version_text, tuple(findings))
