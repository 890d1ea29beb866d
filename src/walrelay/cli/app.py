"""The `walrelay` command."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walrelay import __version__
from walrelay.cli.capture import capture_command
from walrelay.cli.commands import pause_command, resume_command, resync_command, rollback_command
from walrelay.cli.config import config_app
from walrelay.cli.forget_reader import forget_reader_command
from walrelay.cli.init import init_command
from walrelay.cli.migrate_source import migrate_source_command
from walrelay.cli.observed import FormatOfLog, LagLimit, LevelOfLog, Metrics, OnEvent, WebhookUrl, observability_options
from walrelay.cli.places import STATE
from walrelay.cli.preflight import preflight_command
from walrelay.cli.quarantine import quarantine_app
from walrelay.cli.replay import replay_command
from walrelay.cli.run import end_of, run_command
from walrelay.cli.slots import slots_app
from walrelay.cli.status import status_command
from walrelay.cli.top import top_command
from walrelay.cli.verify import verify_command
from walrelay.errors import ConfigError, WalrelayError

if TYPE_CHECKING:
    from rich.console import Console

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
        str | None,
        typer.Option(
            help="both: copy all tables and keep them current. copy: copy them once. changes: every change from now on."
            " [default: both]"
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="caught-up: end once all that is committed now has arrived. [default: run until stopped]"),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Where walrelay keeps what it must remember; the change log is in it. [default: walrelay-state]"
        ),
    ] = None,
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
    slot: Annotated[
        str | None, typer.Option(help="The replication slot. [default: one of its own, walrelay_<publication>_…]")
    ] = None,
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
    from walrelay.config.loading import load

    # An option that is not given leaves the key to the environment, and to what replicate does by itself.
    options: dict[tuple[str | int, ...], tuple[str, object]] = {
        ("source", "url"): ("SOURCE", source),
        ("source", "publication"): ("--publication", publication),
        ("source", "slot"): ("--slot", slot),
        ("source", "migrate_source"): ("--migrate-source", migrate_source or None),
        ("destination", "url"): ("DESTINATION", destination),
        ("destination", "lane"): ("--lane", lane),
        ("store", "path"): ("--state", state),
        ("store", "url"): ("--store", store),
        ("log", "location"): ("--log", log),
        ("log", "follow"): ("--follow", follow or None),
        ("log", "ack"): ("--ack", ack),
        ("log", "retain_age"): ("--retain-age", retain_age),
        ("log", "accept_timeline"): ("--accept-timeline", accept_timeline),
        ("pipeline", "id"): ("--id", pipeline_id),
        ("pipeline", "mode"): ("--mode", mode),
        ("pipeline", "begin_anew"): ("--begin-anew", begin_anew or None),
        ("pipeline", "every"): ("--every", every),
        ("pipeline", "special_values"): ("--special-values", special_values),
        ("pipeline", "on_silent_change"): ("--on-silent-change", on_silent_change),
        ("pipeline", "unknown_types"): ("--unknown-types", unknown_types),
        ("pipeline", "on_bad_changes"): ("--on-bad-changes", on_bad_changes),
        ("pipeline", "max_tables"): ("--max-tables", max_tables),
        ("pipeline", "staging"): ("--staging", staging),
        ("pipeline", "retries"): ("--retries", retries),
        ("pipeline", "busy_timeout"): ("--busy-timeout", busy_timeout),
        **observability_options(metrics, lag_limit, log_format, log_level, webhook, on_event),
        **{("spark", key): ("--spark", value) for key, value in _spark_settings(spark or []).items()},
    }
    end = end_of(until)
    loaded = load(options=options, defaults={("store", "path"): STATE})
    from walrelay.cli.replicate import run_pipeline

    raise typer.Exit(run_pipeline(loaded, end))


app.command("run")(run_command)
app.command("init")(init_command)
app.add_typer(config_app, name="config")
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
