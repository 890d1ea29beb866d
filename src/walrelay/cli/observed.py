"""The options by which a command that runs a pipeline is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walrelay.config.observability import Observability

Metrics = Annotated[
    str | None,
    typer.Option(
        help="Serve /metrics, /health and /ready there: 9187 is this machine alone, 0.0.0.0:9187 all addresses.",
        metavar="[HOST:]PORT",
    ),
]
LagLimit = Annotated[
    str | None, typer.Option(help="Further behind it is not ready, and hooks hear of it: 30s, 5m. [default: 1m]")
]
FormatOfLog = Annotated[
    str | None,
    typer.Option(
        help="text or json: write a log to stderr, a line an event; auto: JSON, but the live view on a terminal."
        " [default: lines for people]"
    ),
]
LevelOfLog = Annotated[
    str | None, typer.Option(help="The least important lines: debug, info, warning, error. [default: info]")
]
WebhookUrl = Annotated[
    str | None,
    typer.Option(help="Post events there as JSON: a table failed, the lag is over its limit, ….", metavar="URL"),
]
OnEvent = Annotated[
    str | None, typer.Option(help="Run this for each event, with its JSON on standard input.", metavar="COMMAND")
]


def observability(
    metrics: str | None,
    lag_limit: str | None,
    log_format: str | None,
    log_level: str | None,
    webhook: str | None,
    on_event: str | None,
) -> Observability:
    """From options and environment. Nobody has asked for a log unless something is said about it."""
    from walrelay.config.observability import (
        Observability,
        address,
        hook_settings,
        logging_settings,
        metrics_settings,
    )

    host, port = (None, None) if metrics is None else address(metrics)
    logging = logging_settings(format=log_format, level=log_level)
    return Observability(
        metrics_settings(host=host, port=port, lag_limit=lag_limit),
        logging if logging.model_fields_set else None,
        hook_settings(webhook=webhook, command=on_event),
    )
