"""`walrelay forget-reader`: let the log forget a pipeline that is gone for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def forget_reader_command(
    reader: Annotated[str, typer.Argument(help="As `walrelay status` lists it, or a pipeline's id.", metavar="ID")],
    state: Annotated[Path, typer.Option(help="The directory that `replicate --state` uses.")] = Path("walrelay-state"),
    log: Annotated[str | None, typer.Option(help="The change log. [default: log in --state]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Forget a reader of the change log: neither the log nor Postgres keeps anything for it any longer."""
    import json
    from dataclasses import asdict

    from walrelay.control.readers import forget_reader

    done = forget_reader(state, reader, log)
    if as_json:
        typer.echo(json.dumps(asdict(done), indent=2))
        return
    typer.echo(f"{done.reader} is forgotten; it had read up to {done.lsn}")
    typer.echo(f"readers that are left: {', '.join(done.left) or 'none'}")
