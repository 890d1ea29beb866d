"""Runs the cases in processes of their own, so that a crash or a hang is a finding and not the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fuzz.cases import MOST_FAILURES, Failure, FuzzReport
from benchmarks.fuzz.report import report_from_json
from benchmarks.fuzz.subjects import SUBJECTS, SubjectName
from benchmarks.fuzz.worker import TRACE

ROOT = Path(__file__).resolve().parents[2]
BATCH = 10_000
STALL_SECONDS = 60.0
"""Without a new case; a case takes milliseconds."""
START_SECONDS = 600.0
"""To compile all kernels, on a busy machine."""
NOT_BEGUN = -1


@dataclass
class Guard:
    """Runs ranges of cases; `progress` hears how many are done."""

    kind: SubjectName
    seed: int
    progress: Callable[[int], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    peak_bytes: int = 0
    """Largest memory of a process."""

    def run(self, first: int, count: int) -> FuzzReport:
        """The report of all cases, those that killed their process among them."""
        report = FuzzReport(self.seed)
        pending = [(at, min(BATCH, first + count - at)) for at in range(first, first + count, BATCH)]
        while pending and len(report.failures) < MOST_FAILURES:
            begin, size = pending.pop(0)
            part, died_at = self._run_process(begin, size)
            if part is not None:
                report.add(part)
                continue
            case, ending = died_at
            if case == NOT_BEGUN:
                raise RuntimeError(f"the fuzz worker ended before its first case: {ending}")
            damage, road = SUBJECTS[self.kind].describe(case, self.seed)
            report.failures.append(Failure(case, damage, road, ending))
            report.count(damage, "failed")
            # What the process had found is lost with it, so its good cases run once more.
            pending[:0] = [(at, n) for at, n in ((begin, case - begin), (case + 1, begin + size - case - 1)) if n > 0]
        return report

    def _run_process(self, first: int, count: int) -> tuple[FuzzReport | None, tuple[int, str]]:
        """The report; or None, and which case ended the process, and how."""
        with tempfile.TemporaryDirectory(prefix="walrelay-fuzz-") as directory:
            trace, said = Path(directory) / "trace", Path(directory) / "report"
            trace.write_bytes(TRACE.pack(NOT_BEGUN))
            command = [
                sys.executable,
                "-m",
                "benchmarks.fuzz.worker",
                self.kind,
                str(self.seed),
                str(first),
                str(count),
                str(trace),
            ]
            with said.open("wb") as output:
                process = subprocess.Popen(command, stdout=output, cwd=ROOT, env={**os.environ, **self.environment})
                try:
                    stalled = self._watch(process, trace)
                finally:
                    process.kill()
                    process.wait()
            if process.returncode == 0:
                found = json.loads(said.read_text())
                self.peak_bytes = max(self.peak_bytes, found.pop("peak_bytes"))
                return report_from_json(found), (NOT_BEGUN, "")
            if process.returncode > 0:
                raise RuntimeError(f"the fuzz worker itself failed: {' '.join(command)}")
            ending = "does not end: killed" if stalled else f"crash: {signal.Signals(-process.returncode).name}"
            return None, (_case(trace), ending)

    def _watch(self, process: subprocess.Popen[bytes], trace: Path) -> bool:
        """Wait for the process; True when it no longer moved."""
        case, since = NOT_BEGUN, time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            if (now := _case(trace)) != case:
                case, since = now, time.monotonic()
                self.progress(case)
            elif time.monotonic() - since > (START_SECONDS if case == NOT_BEGUN else STALL_SECONDS):
                return True
        return False


def _case(trace: Path) -> int:
    found: int = TRACE.unpack(trace.read_bytes())[0]
    return found
