"""`walrelay run`: a pipeline from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from walrelay.config.loading import Loaded

Files = Annotated[
    list[Path],
    typer.Option(
        "-c", "--config", help="The configuration; may be repeated, and a later one wins.", show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A key, over files and environment; may be repeated.", metavar="KEY=VALUE"),
]


def run_command(
    config: Files,
    until: Annotated[
        str | None,
        typer.Option(help="caught-up: end once all that is committed now has arrived. [default: run until stopped]"),
    ] = None,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew", help="As --set pipeline.begin_anew=true: what is lost is made anew, and copied again."
        ),
    ] = False,
    set_: Settings = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Run the pipeline that a configuration describes; SIGTERM and Ctrl-C end it in order."""
    from walrelay.cli.app import _set_debug

    _set_debug(debug)
    end = end_of(until)
    loaded = loaded_from(config, [*(set_ or []), *(["pipeline.begin_anew=true"] if begin_anew else [])])
    from walrelay.cli.replicate import run_pipeline

    raise typer.Exit(run_pipeline(loaded, end, logs=True))


def loaded_from(files: list[Path], settings: list[str] | None) -> Loaded:
    """The configuration of the files, the environment and `--set`."""
    from walrelay.config.loading import load, option_said

    return load(files, dict(map(option_said, settings or [])))


def end_of(word: str | None) -> Literal["caught-up"] | None:
    if word not in (None, "caught-up"):
        raise ConfigError(f"no such end: {word}", hint="--until caught-up, or leave it out to run until stopped.")
    return "caught-up" if word else None
