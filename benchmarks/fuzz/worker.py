"""The process that runs cases for the guard: `python -m benchmarks.fuzz.worker SEED FIRST COUNT TRACE`.

Before each case it writes the case's number into the file TRACE, where it survives a crash. The report goes to stdout.
"""

from __future__ import annotations

import json
import mmap
import resource
import struct
import sys
from pathlib import Path

from benchmarks.fuzz.cases import run_cases
from benchmarks.fuzz.report import report_as_json

TRACE = struct.Struct("<q")


def main(seed: int, first: int, count: int, trace: Path) -> None:
    with trace.open("r+b") as file, mmap.mmap(file.fileno(), TRACE.size) as page:
        report = run_cases(count, seed, first=first, begin_case=lambda case: TRACE.pack_into(page, 0, case))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({**report_as_json(report), "peak_bytes": peak}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
