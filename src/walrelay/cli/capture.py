"""`walrelay capture`: land the changes of a publication in a change log, with a line about how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.errors import ConfigError
from walrelay.model.sizes import size

if TYPE_CHECKING:
    from rich.console import Console

    from walrelay.capture.process import CaptureProcess
    from walrelay.log.status import CaptureStatus

QUIET_SECONDS = 10.0
"""Between two lines where the output is no terminal."""


def capture_command(
    source: Annotated[str, typer.Argument(help="postgresql://user@host:5432/database", show_default=False)],
    publication: Annotated[str, typer.Option(help="The publication that names the tables.", show_default=False)],
    slot: Annotated[str, typer.Option(help="The replication slot; it is made when it is missing.", show_default=False)],
    log: Annotated[str, typer.Option(help="The change log: a directory or s3://bucket/prefix", show_default=False)],
    until: Annotated[
        str | None, typer.Option(help="caught-up: end once all that is committed now is in the log.")
    ] = None,
    ack: Annotated[
        str | None,
        typer.Option(help="log or destination: what Postgres may forget, see docs/change-log.md. [default: log]"),
    ] = None,
    retain_age: Annotated[
        float | None, typer.Option(help="Seconds after which segments that every reader has are removed.")
    ] = None,
    heartbeat: Annotated[
        float | None, typer.Option(help="Seconds between small messages that keep an idle slot moving.")
    ] = None,
    failover: Annotated[bool, typer.Option("--failover", help="Make a slot that standbys synchronise (17+).")] = False,
    spill: Annotated[Path | None, typer.Option(help="Where very large transactions wait for their commit.")] = None,
    accept_timeline: Annotated[int | None, typer.Option(help="After a promotion: go on, on this timeline.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Land every committed change in a change log, until stopped. Ends cleanly on SIGTERM and Ctrl-C."""
    from walrelay.capture.process import CaptureProcess
    from walrelay.cli.app import _set_debug
    from walrelay.cli.progress import stderr_console
    from walrelay.cli.stopping import graceful_stop
    from walrelay.config.settings import capture_settings
    from walrelay.postgres.slot import check_slot_name
    from walrelay.postgres.source import PostgresSource

    _set_debug(debug)
    if until not in (None, "caught-up"):
        raise ConfigError(f"no such end: {until}", hint="--until caught-up, or leave it out to run until stopped.")
    console = stderr_console()
    settings = capture_settings(
        ack=ack,
        retain_age=retain_age,
        heartbeat=heartbeat,
        failover=failover or None,
        spill=spill,
        accept_timeline=accept_timeline,
    )
    process = CaptureProcess(
        PostgresSource(source, publication=publication),
        slot=check_slot_name(slot),
        log=log,
        settings=settings,
        until="caught-up" if until else None,
        notify=lambda message: console.print(message, soft_wrap=True, markup=False),
    )
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    with graceful_stop(stop, console.print):
        process.start()
        _watch(process, console, lambda: stopped)
        process.stop()
    status = process.status()
    if status is not None:
        console.print(_headline(status, log), soft_wrap=True)


def _watch(process: CaptureProcess, console: Console, stopped: Callable[[], bool]) -> None:
    """Until it ends or is asked to."""
    shown = time.monotonic()
    live = console.is_interactive
    with console.status("starting") if live else nullcontext() as line:
        while not stopped() and not process.wait(0.2):
            status = process.status()
            if status is None or status.pid != process.pid:
                continue
            if line is not None:
                line.update(describe(status))
            elif time.monotonic() - shown >= QUIET_SECONDS:
                console.print(describe(status), soft_wrap=True)
                shown = time.monotonic()


def describe(status: CaptureStatus) -> str:
    """One line about a running capture."""
    words = [
        f"{status.state} · at {status.durable_lsn}",
        f"{status.rows_per_second:,.0f} rows/s, {status.transactions_per_second:,.0f} transactions/s",
        f"{size(status.lag_bytes)} behind",
    ]
    if status.retained_wal_bytes is not None:
        words.append(f"{size(status.retained_wal_bytes)} of WAL kept for the slot")
    if status.open_transactions:
        words.append(f"{status.open_transactions} open transactions, {size(status.open_transaction_bytes)}")
    return " · ".join(words)


def _headline(status: CaptureStatus, log: str) -> str:
    return (
        f"[bold]{status.transactions:,} transactions, {status.rows:,} changes[/] captured; {log} holds everything up to"
        f" {status.durable_lsn}, the slot {status.slot} is confirmed up to {status.confirmed_lsn}"
    )
