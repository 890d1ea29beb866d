"""Bounds of a file's values: right for everybody who leaves files out by them, or none."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.destinations.delta.statistics import statistics
from walrelay.destinations.landing import Landing


def said(tmp_path: Path, columns: dict[str, Any], group_rows: int = 1_000) -> dict[str, Any]:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=group_rows)
    found: dict[str, Any] = json.loads(statistics(file))
    return found


def test_bounds_hold_over_all_groups(tmp_path: Path) -> None:
    found = said(tmp_path, {"n": pa.array([3, None, -5, 9, None, None]), "s": ["b", "a", "c", "é", None, None]}, 2)
    assert found["numRecords"] == 6
    assert found["minValues"] == {"n": -5, "s": "a"}
    assert found["maxValues"] == {"n": 9, "s": "é"}
    assert found["nullCount"] == {"n": 3, "s": 2}


def test_instants_are_rounded_outwards(tmp_path: Path) -> None:
    instants = [datetime(2020, 1, 1, 0, 0, 0, 1_001, UTC), datetime(2020, 1, 1, 0, 0, 0, 999_999, UTC)]
    columns = {
        "t": pa.array(instants, pa.timestamp("us", "UTC")),
        "n": pa.array([one.replace(tzinfo=None) for one in instants], pa.timestamp("us")),
    }
    found = said(tmp_path, columns)
    assert found["minValues"] == {"t": "2020-01-01T00:00:00.001Z", "n": "2020-01-01T00:00:00.001"}
    assert found["maxValues"] == {"t": "2020-01-01T00:00:01.000Z", "n": "2020-01-01T00:00:01.000"}


def test_what_cannot_be_said_exactly_is_not_said(tmp_path: Path) -> None:
    columns = {
        "nan": [1.0, float("nan")],
        "decimal": pa.array([Decimal("1.10"), Decimal("2.20")]),
        "long": ["a", "z" * 33],
        "bytes": [b"a", b"b"],
        "far": pa.array([0, 10**7], pa.int32()).cast(pa.date32()),
        "none": pa.array([None, None], pa.int64()),
        "list": [[1], [2]],
        "struct": [{"a": 1}, {"a": 2}],
        "day": [date(1, 1, 1), date(9999, 12, 31)],
    }
    found = said(tmp_path, columns)
    assert found["minValues"] == {"day": "0001-01-01"}
    assert found["maxValues"] == {"day": "9999-12-31"}
    assert found["nullCount"].keys() == columns.keys() - {"list", "struct"}


def test_files_that_are_kept_have_bounds_and_are_small(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": pa.array(range(10_000)), "s": ["the same words"] * 10_000})
    files = []
    for kept in (True, False):
        landing = Landing(str(tmp_path), batch.schema, file_bytes=1 << 30, kept=kept)
        landing.write(batch)
        files += landing.files()
    kept_file, read_once = files
    assert kept_file.bytes * 3 < read_once.bytes
    assert json.loads(statistics(Path(kept_file.path)))["maxValues"] == {"n": 9_999, "s": "the same words"}
    assert json.loads(statistics(Path(read_once.path)))["maxValues"] == {}
    assert pq.read_table(kept_file.path).equals(pq.read_table(read_once.path))
