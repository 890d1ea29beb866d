"""`walrelay config`: whether a configuration is right, what holds, and what there is to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import Json
from walrelay.cli.preflight import show_findings
from walrelay.cli.run import Files, Settings, loaded_from
from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from walrelay.config.loading import Loaded
    from walrelay.control.preflight_report import Report

config_app = typer.Typer(
    help="Check a pipeline's configuration, show what holds, and print its schema.", no_args_is_help=True
)
Connect = Annotated[
    bool, typer.Option("--connect", help="Also ask the source whether it is ready, as `walrelay preflight` does.")
]


@config_app.command("check")
def check_command(config: Files, set_: Settings = None, connect: Connect = False, json_output: Json = False) -> None:
    """Say what is wrong with a configuration. Exit code 0 when nothing is, 1 otherwise."""
    from walrelay.control.config_check import check

    try:
        loaded = loaded_from(config, set_)
        check(loaded)
    except ConfigError as error:
        if not json_output:
            raise
        problems = error.context.get("problems") or [{"message": error.message, "hint": error.hint}]
        typer.echo(json.dumps({"ok": False, "problems": problems}, indent=2))
        raise typer.Exit(1) from None
    warnings = loaded.warnings()
    findings = _ask(loaded) if connect else None
    ok = findings is None or findings.ok
    if json_output:
        body = {"ok": ok, "problems": [], "warnings": warnings}
        typer.echo(json.dumps(body | ({"preflight": json.loads(findings.to_json())} if findings else {}), indent=2))
    else:
        for line in warnings:
            typer.echo(line, err=True)
        typer.echo(f"{', '.join(loaded.files)}: right")
        if findings is not None:
            show_findings(findings)
    raise typer.Exit(0 if ok else 1)


@config_app.command("show")
def show_command(config: Files, set_: Settings = None, json_output: Json = False) -> None:
    """Print what holds, key by key, and where each value comes from. Secrets are masked."""
    from walrelay.config.shown import as_json, as_yaml, shown

    entries = shown(loaded_from(config, set_))
    typer.echo(json.dumps(as_json(entries), indent=2, ensure_ascii=False) if json_output else as_yaml(entries).rstrip())


@config_app.command("schema")
def schema_command(
    _config: Annotated[
        list[Path] | None, typer.Option("-c", "--config", hidden=True, help="Not read: all have the same schema.")
    ] = None,
) -> None:
    """Print the JSON schema of a configuration, for editors."""
    from walrelay.control.config_schema import config_schema

    typer.echo(json.dumps(config_schema(), indent=2))


def _ask(loaded: Loaded) -> Report:
    """What a run would meet at once: the destination's URL is looked at too, and the source asked."""
    from rich.console import Console

    from walrelay.control.config_check import source_of, target_path
    from walrelay.control.preflight import preflight
    from walrelay.destinations.urls import destination_from_url

    target = loaded.config.target
    with loaded.blaming(*target_path(loaded)):
        destination_from_url(target.url.get_secret_value(), target.lane)
    with Console(stderr=True).status("asking the source"):
        return preflight(source_of(loaded), mode=loaded.config.pipeline.mode)
