"""`walrelay init`: five questions, and a first configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE
from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from walrelay.control.first_config import Answers

_NEEDED = "Give --source and --publication, or run it in a terminal, where it asks."


def init_command(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pipeline.yaml"),
    source: Annotated[str | None, typer.Option(help="postgresql://user@host:5432/database", show_default=False)] = None,
    publication: Annotated[
        str | None, typer.Option(help="The publication that names the tables.", show_default=False)
    ] = None,
    destination: Annotated[
        str | None, typer.Option(help="Where the tables are brought. [default: duckdb:///walrelay.duckdb]")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Where the state lives: a directory, or a postgresql:// URL. [default: walrelay-state]"),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="How often changes are taken in: 10s, 5m. [default: as the destination likes]")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take the default of what is not given.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a first configuration; what is not given is asked. A password is not written, but a reference to it."""
    from walrelay.control.first_config import first_config

    asks = not yes and sys.stdin.isatty()
    _keep_what_is_there(file, asks, force)
    answers = _answers(asks, source, publication, destination, store, every)
    made = first_config(answers, str(file))
    _write(file, made.text, force or asks)
    typer.echo(f"{file} is written. Next: walrelay config check -c {file} --connect")
    if made.variables:
        typer.echo(f"It refers to secrets by variables, which must be set when it is used: {', '.join(made.variables)}")


def _keep_what_is_there(file: Path, asks: bool, force: bool) -> None:
    """Never write over a file without being told to."""
    if force or not file.exists():
        return
    if not asks:
        raise ConfigError(f"{file} is there already", hint="Give another name, or --force to write over it.")
    if not typer.confirm(f"{file} is there already. Write over it?", default=False):
        raise typer.Exit(1)


def _answers(
    asks: bool,
    source: str | None,
    publication: str | None,
    destination: str | None,
    store: str | None,
    every: str | None,
) -> Answers:
    from walrelay.control.first_config import Answers

    def asked(given: str | None, question: str, default: str | None) -> str:
        if given is not None:
            return given
        if not asks:
            if default is None:
                raise ConfigError("walrelay init has nobody to ask", hint=_NEEDED)
            return default
        return str(typer.prompt(question, default=default)).strip()

    made = Answers(
        source=asked(source, "1/5  Source, as in postgresql://user@host:5432/database", None),
        publication=asked(publication, "2/5  Publication that names the tables", None),
        destination=asked(destination, "3/5  Destination, a URL", "duckdb:///walrelay.duckdb"),
        store=asked(store, "4/5  Where the state lives: a directory, or a postgresql:// URL", str(STATE)),
        every=asked(every, "5/5  How often changes are taken in (10s, 5m; or nothing)", "") or None,
    )
    _refuse_wrong(made)
    return made


def _refuse_wrong(answers: Answers) -> None:
    """What no configuration could say; better now than when it runs."""
    from walrelay.config.loading import Loaded, load
    from walrelay.control.config_check import check
    from walrelay.control.first_config import is_database

    place = "url" if is_database(answers.store) else "path"
    loaded: Loaded = load(
        options={
            ("source", "url"): ("--source", answers.source),
            ("source", "publication"): ("--publication", answers.publication),
            ("destination", "url"): ("--destination", answers.destination),
            ("store", place): ("--store", answers.store),
            ("pipeline", "every"): ("--every", answers.every),
        }
    )
    check(loaded)


def _write(file: Path, text: str, over: bool) -> None:
    """Readable by its owner alone: it may come to hold more than it does now."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if over else os.O_EXCL)
    try:
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint="Give another path.") from error
