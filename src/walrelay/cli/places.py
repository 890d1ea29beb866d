"""The options by which a command finds a pipeline's state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walrelay.control.stores import Place

State = Annotated[Path, typer.Option(help="The directory that `replicate --state` uses.")]
Store = Annotated[
    str | None, typer.Option(help="A Postgres that holds the state, as given to `replicate --store`.", metavar="URL")
]
Id = Annotated[str | None, typer.Option("--id", help="The pipeline. [default: the only one in the state]")]
Log = Annotated[str | None, typer.Option(help="The change log. [default: log in --state]")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
STATE = Path("walrelay-state")


def place_of(state: Path, store: str | None, pipeline: str | None, log: str | None = None) -> Place:
    from walrelay.control.stores import Place

    return Place(state, pipeline, log, store)
