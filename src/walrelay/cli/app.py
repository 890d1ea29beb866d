"""The `walrelay` command."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from walrelay import __version__
from walrelay.cli.capture import capture_command
from walrelay.cli.commands import pause_command, resume_command, resync_command, rollback_command
from walrelay.cli.forget_reader import forget_reader_command
from walrelay.cli.migrate_source import migrate_source_command
from walrelay.cli.observed import FormatOfLog, LagLimit, LevelOfLog, Metrics, OnEvent, WebhookUrl, observability
from walrelay.cli.preflight import preflight_command
from walrelay.cli.quarantine import quarantine_app
from walrelay.cli.replay import replay_command
from walrelay.cli.slots import slots_app
from walrelay.cli.status import status_command
from walrelay.cli.top import top_command
from walrelay.cli.verify import verify_command
from walrelay.errors import ConfigError, WalrelayError

if TYPE_CHECKING:
    from rich.console import Console

    from walrelay.pipeline import Mode

app = typer.Typer(
    name="walrelay",
    help="Postgres replication on Spark: copy tables out of Postgres and keep the copies current.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"walrelay {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    _set_debug(debug)


def _set_debug(debug: bool) -> None:
    global _debug  # noqa: PLW0603  # one process, one command
    _debug = _debug or debug
    # py4j logs every interrupted call; what matters reaches the user as an error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL if not _debug else logging.INFO)


Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command()
def replicate(
    source: Annotated[str, typer.Argument(help="postgresql://user@host:5432/database", show_default=False)],
    destination: Annotated[
        str,
        typer.Argument(
            help="duckdb:///out.duckdb, duckdb:////absolute/path, delta:///lake, iceberg:///lake, stdout:, null:",
            show_default=False,
        ),
    ],
    publication: Annotated[str, typer.Option(help="The publication that names the tables.", show_default=False)],
    mode: Annotated[
        str,
        typer.Option(
            help="both: copy all tables and keep them current. copy: copy them once. changes: every change from now on."
        ),
    ] = "both",
    until: Annotated[
        str | None,
        typer.Option(help="caught-up: end once all that is committed now has arrived. [default: run until stopped]"),
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Where walrelay keeps what it must remember; the change log is in it.")
    ] = Path("walrelay-state"),
    store: Annotated[
        str | None,
        typer.Option(help="A Postgres in place of --state; the change log stays there, or at --log.", metavar="URL"),
    ] = None,
    log: Annotated[
        str | None, typer.Option(help="The change log: a directory or s3://… [default: log in --state]")
    ] = None,
    pipeline_id: Annotated[
        str | None, typer.Option("--id", help="The pipeline's name in its state. [default: the publication's]")
    ] = None,
    slot: Annotated[str | None, typer.Option(help="The replication slot. [default: walrelay_<publication>]")] = None,
    ack: Annotated[
        str | None,
        typer.Option(help="log or destination: what Postgres may forget. [default: destination, log on s3://…]"),
    ] = None,
    retain_age: Annotated[
        float | None,
        typer.Option(help="Seconds for which the log keeps what the destination has. [default: 604800, a week]"),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="How often changes are taken in: 10s, 5m. [default: at once; a lake every 10s]"),
    ] = None,
    lane: Annotated[
        str | None,
        typer.Option(
            help="frames: let Spark collapse changes first, for DuckDB. [default: what the destination is for]"
        ),
    ] = None,
    special_values: Annotated[
        str | None,
        typer.Option(help="null, clamp or error: values the destination cannot hold. [default: null]"),
    ] = None,
    on_silent_change: Annotated[
        str | None,
        typer.Option(
            help="copy, warn or ignore: a table whose rows changed without a message, say a partition dropped."
            " [default: copy]"
        ),
    ] = None,
    unknown_types: Annotated[
        str | None, typer.Option(help="bytes or text: types without a decoder. [default: bytes]")
    ] = None,
    on_bad_changes: Annotated[
        str | None,
        typer.Option(
            help="copy or error: a table with changes that could not be decoded is copied again, or waits for you."
            " [default: copy]"
        ),
    ] = None,
    max_tables: Annotated[int | None, typer.Option(help="Tables read at the same time. [default: 4]")] = None,
    staging: Annotated[Path | None, typer.Option(help="Where copies land first. [default: beside the file]")] = None,
    retries: Annotated[int | None, typer.Option(help="Retries after a lost connection. [default: 5]")] = None,
    busy_timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for a destination that is in use. [default: 60]")
    ] = None,
    spark: Annotated[
        list[str] | None,
        typer.Option(help="A setting for Spark: key=value; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    migrate_source: Annotated[
        bool, typer.Option("--migrate-source", help="First install the DDL trigger on the source; needs a superuser.")
    ] = False,
    accept_timeline: Annotated[
        int | None, typer.Option(help="After a failover: the promoted server's timeline, to go on there.")
    ] = None,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew", help="Where slot, log or destination turn out to be lost: make them anew, and copy again."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Capture nothing: `walrelay capture` elsewhere writes the log at --log.")
    ] = False,
    metrics: Metrics = None,
    lag_limit: LagLimit = None,
    log_format: FormatOfLog = None,
    log_level: LevelOfLog = None,
    webhook: WebhookUrl = None,
    on_event: OnEvent = None,
    debug: Debug = False,
) -> None:
    """Bring the tables of a publication, or their changes, to a destination; exit code 0 when all is durable."""
    _set_debug(debug)
    from walrelay.cli.replicate import LiveTask, run_copy, run_live
    from walrelay.config.settings import capture_settings, copy_settings
    from walrelay.destinations.urls import destination_from_url
    from walrelay.postgres.source import PostgresSource

    settings = copy_settings(
        special_values=special_values,
        unknown_types=unknown_types,
        on_silent_change=on_silent_change,
        on_bad_changes=on_bad_changes,
        max_tables=max_tables,
        staging=staging,
        every=every,
        retries=retries,
        busy_timeout=busy_timeout,
    )
    observed = observability(metrics, lag_limit, log_format, log_level, webhook, on_event)
    if mode != "copy":
        task = LiveTask(
            mode=cast("Mode", mode),
            id=pipeline_id or publication,
            state=state,
            store=store,
            log=log,
            slot=slot,
            until=_until(until),
            capture=capture_settings(ack=ack, retain_age=retain_age, accept_timeline=accept_timeline),
            migrate_source=migrate_source,
            begin_anew=begin_anew,
            follow=follow,
        )
        raise typer.Exit(
            run_live(
                PostgresSource(source, publication=publication),
                destination_from_url(destination, lane),
                settings,
                task,
                _spark_settings(spark or []),
                observed,
            )
        )
    if migrate_source:
        raise ConfigError("mode copy follows no DDL", hint="Leave out --migrate-source, or use mode both or changes.")
    raise typer.Exit(
        run_copy(
            PostgresSource(source, publication=publication),
            destination_from_url(destination, lane),
            mode,
            settings,
            _spark_settings(spark or []),
            observed,
        )
    )


app.command("preflight")(preflight_command)
app.command("migrate-source")(migrate_source_command)
app.command("capture")(capture_command)
app.command("replay")(replay_command)
app.command("status")(status_command)
app.command("top")(top_command)
app.command("resync")(resync_command)
app.command("rollback")(rollback_command)
app.command("pause")(pause_command)
app.command("resume")(resume_command)
app.command("verify")(verify_command)
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(slots_app, name="slots")
app.command("forget-reader")(forget_reader_command)


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="About how many rows to make.")] = 1_000_000,
    output: Annotated[Path, typer.Option(help="The DuckDB file to make.")] = Path("walrelay-demo.duckdb"),
    debug: Debug = False,
) -> None:
    """Start a Postgres, fill it with a small shop, copy it to DuckDB, check it, and show what came out."""
    _set_debug(debug)
    from walrelay.cli.demo import demo_command

    raise typer.Exit(demo_command(rows, output))


def _until(word: str | None) -> Literal["caught-up"] | None:
    if word not in (None, "caught-up"):
        raise ConfigError(f"no such end: {word}", hint="--until caught-up, or leave it out to run until stopped.")
    return "caught-up" if word else None


def _spark_settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError(f"not a Spark setting: {key}", hint="--spark spark.driver.memory=2g")
        settings[key] = value
    return settings


def main(arguments: list[str] | None = None) -> Any:
    """Run a command. Errors that walrelay can name are printed without a traceback, unless --debug."""
    try:
        return app(arguments)
    except WalrelayError as error:
        if _debug:
            raise
        show_error(_error_console(), error)
        sys.exit(1)
    except KeyboardInterrupt:
        if _debug:
            raise
        _error_console().print("stopped; nothing is half-written")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, e.g. `| head`: there is nobody to tell.
        sys.stderr.close()
        sys.exit(141)


def _error_console() -> Console:
    # Imported when there is something to say in colours: a command that answers in JSON need not wait for it.
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def show_error(console: Console, error: WalrelayError) -> None:
    """An error as a user should see it: what happened, what to do, and a code to look up."""
    console.print(f"[bold red]error[/] {_plain(error.message)} [dim]({error.code})[/]", soft_wrap=True)
    if error.hint:
        console.print(f"  [bold]what to do[/] {_plain(error.hint)}", soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
