"""Plain rows hold what Python's dates cannot."""

from __future__ import annotations

import datetime

import pyarrow as pa

from walrelay.decode.plain_rows import plain_rows

INFINITY = 2**63 - 1


def test_dates_python_can_hold_are_dates_and_others_are_text() -> None:
    batch = pa.record_batch(
        {
            "day": pa.array([0, None], pa.int32()).view(pa.date32()),
            "far": pa.array([INFINITY, -INFINITY]).view(pa.timestamp("us")),
            "old": pa.array([-800_000, 0], pa.int32()).view(pa.date32()),
            "list": pa.array([[-800_000], None], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
        }
    )
    assert list(plain_rows(batch)) == [
        {"day": datetime.date(1970, 1, 1), "far": "infinity", "old": "-0221-09-04", "list": ["-0221-09-04"]},
        {"day": None, "far": "-infinity", "old": "1970-01-01", "list": None},
    ]
