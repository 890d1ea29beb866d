"""The fuzz run as a command: all cases as users run the code, then some with every array access checked."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.fuzz.cases import FuzzReport
from benchmarks.fuzz.guard import Guard
from benchmarks.fuzz.report import report_as_json, show_report
from benchmarks.machine import describe_machine, write_result


def run_fuzz(*, cases: int, seed: int, first: int, bounds: int | None, output: Path, console: Console) -> bool:
    """Run, show and write it all; True when nothing failed."""
    report, peak = _guarded(seed, first, cases, {}, "damaged streams", console)
    show_report(report, "Damaged COPY streams", console)
    console.print(f"largest process {peak / 1e6:,.0f} MB")
    reports = {"as_shipped": {**report_as_json(report), "peak_bytes": peak}}
    ok = report.ok
    checked_cases = cases // 10 if bounds is None else bounds
    if checked_cases:
        # Compiled code does not check its bounds; here it does, in kernels that nobody else gets to see.
        with tempfile.TemporaryDirectory(prefix="walrelay-fuzz-kernels-") as kernels:
            environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": kernels}
            checked, _ = _guarded(seed, first, checked_cases, environment, "with bounds checks", console)
        show_report(checked, "The same with bounds checks", console)
        reports["bounds_checked"] = report_as_json(checked)
        ok = ok and checked.ok
    console.print(f"wrote {write_result(output, 'fuzz', {'machine': describe_machine(), **reports})}")
    return ok


def _guarded(
    seed: int, first: int, count: int, environment: Mapping[str, str], what: str, console: Console
) -> tuple[FuzzReport, int]:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=count)
        guard = Guard(seed, lambda case: progress.update(task, completed=case - first), environment)
        return guard.run(first, count), guard.peak_bytes
