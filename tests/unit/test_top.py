"""The frames of `walrelay top`, narrow and wide, and what they say of a pipeline that is not well."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.telemetry_kit import capturing
from walrelay.cli.top import Rates, frame, rates
from walrelay.control.status import StatusReport, TableLine

WELL = StatusReport(
    pipeline="shop",
    running=True,
    tables=(
        TableLine("public.orders", "ready"),
        TableLine("public.a_table_whose_name_is_really_quite_long_indeed", "data_sync"),
        TableLine("public.items", "errored", "permission denied for items", "GRANT SELECT", "source.rights"),
    ),
    applied_lsn="0/16B3748",
    log_end_lsn="0/16B3748",
    lag_seconds=0.4,
    unknown_since=None,
    lag_bytes=2_000,
    log_segments=7,
    log_bytes=5_000_000,
    capture=capturing(rows=1_000, retained_wal_bytes=3_000_000),
    treated={"public.orders": {"copy": {"NUMERIC_NAN": 3}}},
    quarantined={"public.items": 2},
)


def drawn(report: StatusReport, width: int, height: int = 40, speed: Rates | None = None, **more: bool) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, highlight=False, **more)  # type: ignore[arg-type]
    console.print(frame(report, speed, console))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 140])
def test_a_frame_has_everything_and_breaks_no_line(width: int) -> None:
    lines = drawn(WELL, width, speed=Rates(1_234.0, 5_000.0))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width and len(lines) == 9
    for said in ("shop is running", "0.4 s", "1 of 3 tables ready", "1 in error", "WAL kept", "1,234 changes/s"):
        assert said in text, said
    assert "source.rights" in text and lines[6].startswith("public.items")
    assert ("quarantined" in text) == (width == 140)


def test_where_there_is_no_room_tables_in_error_come_first_and_the_others_are_counted() -> None:
    many = tuple(TableLine(f"public.t{number:03}", "ready") for number in range(200))
    lines = drawn(replace(WELL, tables=(*many, WELL.tables[2])), 80, height=20, force_terminal=True)
    assert len(lines) <= 20 and any(line.startswith("public.items") for line in lines)
    assert lines[-1].endswith("189 more")


def test_a_pipeline_that_does_not_run_says_so() -> None:
    text = "\n".join(drawn(replace(WELL, running=False, capture=None, lag_seconds=None, unknown_since=0.0), 100))
    assert "not running" in text and "capture does not run" in text and "unknown since" in text


def test_rates_are_what_has_come_between_two_frames() -> None:
    assert WELL.capture is not None
    later = replace(WELL, capture=replace(WELL.capture, rows=1_500), applied_lsn="0/16B4748")
    assert rates(WELL, later, 2.0) == Rates(250.0, 2_048.0)
    assert rates(WELL, replace(WELL, capture=None), 2.0) is None
    assert rates(WELL, replace(WELL, capture=replace(WELL.capture, pid=2)), 2.0) is None


def test_a_name_cannot_command_the_terminal() -> None:
    odd = replace(WELL, pipeline="[red]x", tables=(TableLine("public.\x1b[31mred", "ready"),))
    text = "\n".join(drawn(odd, 100))
    assert "[red]x is" in text and "\x1b" not in text
