"""Makes the page about metrics and events from the code: `python -m walrelay.telemetry.metrics_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from walrelay.config.choices import HookEvent
from walrelay.telemetry.events import PHRASES
from walrelay.telemetry.metrics import METRICS

PAGE: Final = "docs/reference/metrics.md"
_HEAD = """# Metrics and events

Made from the code by `python -m walrelay.telemetry.metrics_page`; do not edit. [How to monitor a
pipeline](../how-to/monitor.md) says how to switch them on.

## Metrics

Every sample has the label `pipeline`. A value that is not known has no sample: while the source is not heard
there is no lag.
"""
_EVENTS = """
## Events

What hooks are told, as JSON, with `event`, `id` (the same however often it is sent), `at` and `pipeline`, and:

| Event | In the log | Fields |
| --- | --- | --- |
"""
FIELDS: Final[dict[HookEvent, tuple[str, ...]]] = {
    "table_failed": ("table", "code", "message", "hint"),
    "table_recovered": ("table",),
    "lag_over_limit": ("lag_seconds", "limit_seconds", "lag_bytes"),
    "lag_under_limit": ("lag_seconds", "limit_seconds", "lag_bytes"),
    "slot_at_risk": ("slot", "retained_bytes", "message"),
    "slot_safe": ("slot", "retained_bytes"),
    "pipeline_ended": ("outcome", "code", "message", "hint", "changes", "rows", "seconds", "failed_tables"),
}
"""What an event may say besides; of the end, what applies."""


def render() -> str:
    """The page."""
    return _HEAD + "\n".join(_metrics()) + "\n" + _EVENTS + "\n".join(_events()) + "\n"


def _metrics() -> Iterator[str]:
    yield "\n| Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |"
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
        yield f"| `{one.name}` | {one.kind} | {labels} | {one.help} |"


def _events() -> Iterator[str]:
    for name, (_, phrase) in PHRASES.items():
        yield f"| `{name}` | {phrase} | {', '.join(f'`{field}`' for field in FIELDS[name])} |"


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    root.joinpath(PAGE).write_text(render(), encoding="utf-8")
