"""The options by which a command that runs a pipeline is watched."""

from __future__ import annotations

from typing import Annotated

import typer

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


def observability_options(
    metrics: str | None,
    lag_limit: str | None,
    log_format: str | None,
    log_level: str | None,
    webhook: str | None,
    on_event: str | None,
) -> dict[tuple[str | int, ...], tuple[str, object]]:
    """The keys that the options set, each with the option's name."""
    from walrelay.config.observability import address

    host, port = (None, None) if metrics is None else address(metrics)
    return {
        ("metrics", "host"): ("--metrics", host),
        ("metrics", "port"): ("--metrics", port),
        ("metrics", "lag_limit"): ("--lag-limit", lag_limit),
        ("logging", "format"): ("--log-format", log_format),
        ("logging", "level"): ("--log-level", log_level),
        ("hooks", "webhook"): ("--webhook", webhook),
        ("hooks", "command"): ("--on-event", on_event),
    }
