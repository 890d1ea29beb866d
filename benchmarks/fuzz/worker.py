"""The process that runs cases for the guard: `python -m benchmarks.fuzz.worker KIND SEED FIRST COUNT TRACE`.

Before each case it writes the case's number into the file TRACE, where it survives a crash. The report goes to stdout.
"""

from __future__ import annotations

import json
import mmap
import resource
import struct
import sys
from pathlib import Path
from typing import cast

from benchmarks.fuzz.report import report_as_json
from benchmarks.fuzz.subjects import SUBJECTS, SubjectName

TRACE = struct.Struct("<q")


def main(kind: SubjectName, seed: int, first: int, count: int, trace: Path) -> None:
    with trace.open("r+b") as file, mmap.mmap(file.fileno(), TRACE.size) as page:
        run = SUBJECTS[kind].run
        report = run(count, seed, first=first, begin_case=lambda case: TRACE.pack_into(page, 0, case))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({**report_as_json(report), "peak_bytes": peak}))


if __name__ == "__main__":
    main(cast(SubjectName, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
