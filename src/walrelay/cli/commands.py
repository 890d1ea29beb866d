"""`walrelay resync`, `rollback`, `pause`, `resume`: what a pipeline is to do, also while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE, Id, Json, State, Store, place_of
from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from walrelay.control.commands import Asked
    from walrelay.stores.base import PipelineStore

_WORDS = {
    "resync": "{table} is copied again",
    "rollback": "{table} goes one phase back from {phase}",
    "pause": "nothing more is written to the destination; capture goes on, so the source keeps no more than it must",
    "resume": "the destination gets what has come meanwhile",
}


def resync_command(
    tables: Annotated[list[str] | None, typer.Argument(help="The tables: schema.table.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tables.")] = False,
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    as_json: Json = False,
) -> None:
    """Have tables copied again, by the running pipeline or by the next start."""
    from walrelay.control.commands import resync

    if bool(tables) == everything:
        raise ConfigError("name tables, or all of them", hint="walrelay resync public.orders, or walrelay resync --all")
    _tell(state, store, pipeline, as_json, lambda opened: resync(opened, tables or ()))


def rollback_command(
    table: Annotated[str, typer.Argument(help="The table: schema.table.", show_default=False)],
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    as_json: Json = False,
) -> None:
    """Have a table go one phase back: of one in error, what it did before is tried again."""
    from walrelay.control.commands import rollback

    _tell(state, store, pipeline, as_json, lambda opened: [rollback(opened, table)])


def pause_command(state: State = STATE, store: Store = None, pipeline: Id = None, as_json: Json = False) -> None:
    """Write nothing more to the destination until `walrelay resume`. Capture goes on; copies under way are finished."""
    from walrelay.control.commands import pause

    _tell(state, store, pipeline, as_json, lambda opened: [pause(opened)])


def resume_command(state: State = STATE, store: Store = None, pipeline: Id = None, as_json: Json = False) -> None:
    """End a pause."""
    from walrelay.control.commands import resume

    _tell(state, store, pipeline, as_json, lambda opened: [resume(opened)])


def _tell(state: State, store: Store, pipeline: Id, as_json: bool, ask: Callable[[PipelineStore], list[Asked]]) -> None:
    with place_of(state, store, pipeline).opened() as opened:
        asked = ask(opened)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in asked], indent=2))
        return
    for one in asked:
        when = "now: the pipeline is running" if one.running else "at the pipeline's next start"
        typer.echo(f"{_WORDS[one.what].format(table=one.table, phase=one.phase)} ({when})")
