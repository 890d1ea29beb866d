"""The fuzz run as a command: all cases as users run the code, then some with every array access checked."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.fuzz.cases import FuzzReport
from benchmarks.fuzz.guard import Guard
from benchmarks.fuzz.report import report_as_json, show_report
from benchmarks.fuzz.subjects import SUBJECTS, SubjectName
from benchmarks.machine import describe_machine, write_result


def run_fuzz(
    *,
    kinds: Sequence[SubjectName],
    cases: int,
    seed: int,
    first: int,
    bounds: int | None,
    output: Path,
    console: Console,
) -> bool:
    """Run, show and write it all, the cases shared out among the kinds; True when nothing failed."""
    reports: dict[str, Any] = {}
    ok = True
    for place, kind in enumerate(kinds):
        share = cases // len(kinds) + (place < cases % len(kinds))
        checked = share // 10 if bounds is None else bounds
        if share:
            reports[kind], good = _run_kind(kind, seed, first, share, checked, console)
            ok = ok and good
    console.print(f"wrote {write_result(output, 'fuzz', {'machine': describe_machine(), **reports})}")
    return ok


def _run_kind(
    kind: SubjectName, seed: int, first: int, cases: int, checked_cases: int, console: Console
) -> tuple[dict[str, Any], bool]:
    title = SUBJECTS[kind].title
    report, peak = _guarded(kind, seed, first, cases, {}, title.lower(), console)
    show_report(report, title, kind, console)
    console.print(f"largest process {peak / 1e6:,.0f} MB")
    reports = {"as_shipped": {**report_as_json(report), "peak_bytes": peak}}
    ok = report.ok
    if checked_cases:
        # Compiled code does not check its bounds; here it does, in kernels that nobody else gets to see.
        with tempfile.TemporaryDirectory(prefix="walrelay-fuzz-kernels-") as kernels:
            environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": kernels}
            checked, _ = _guarded(kind, seed, first, checked_cases, environment, "with bounds checks", console)
        show_report(checked, "The same with bounds checks", kind, console)
        reports["bounds_checked"] = report_as_json(checked)
        ok = ok and checked.ok
    return reports, ok


def _guarded(
    kind: SubjectName,
    seed: int,
    first: int,
    count: int,
    environment: Mapping[str, str],
    what: str,
    console: Console,
) -> tuple[FuzzReport, int]:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=count)
        guard = Guard(kind, seed, lambda case: progress.update(task, completed=case - first), environment)
        return guard.run(first, count), guard.peak_bytes
