"""Landed files: row groups as DuckDB has them, whatever batches the rows come in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walrelay.destinations import landing
from walrelay.destinations.landing import GROUP_ROWS, Landing

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch(first: int, rows: int, width: int = 3) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + rows), pa.int64())
    return pa.RecordBatch.from_arrays([numbers, pa.array(["x" * width] * rows, pa.string())], schema=SCHEMA)


def groups(path: str) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_groups_are_full_but_the_last(tmp_path: Path) -> None:
    made = Landing(str(tmp_path), SCHEMA, file_bytes=2**40)
    for first in range(0, 400_000, 50_000):
        made.write(batch(first, 50_000))
    (file,) = made.files()
    assert groups(file.path) == [GROUP_ROWS] * 3 + [400_000 - 3 * GROUP_ROWS]
    assert pq.read_table(file.path)["n"].to_pylist() == list(range(400_000))


def test_wide_rows_make_smaller_groups(tmp_path: Path) -> None:
    made = Landing(str(tmp_path), SCHEMA, file_bytes=2**40)
    for first in range(0, 80_000, 10_000):
        made.write(batch(first, 10_000, width=2_000))
    (file,) = made.files()
    assert groups(file.path) == [GROUP_ROWS // 4] * 2 + [80_000 - GROUP_ROWS // 2]


@given(
    counts=st.lists(st.integers(0, 50), max_size=20),
    rows=st.sampled_from([8, 15, 64]),
    group_bytes=st.integers(1, 2_000),
    file_bytes=st.integers(1, 5_000),
)
def test_every_row_lands_once_and_in_order(
    counts: list[int], rows: int, group_bytes: int, file_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landing, "GROUP_ROWS", rows)
        patch.setattr(landing, "GROUP_BYTES", group_bytes)
        made, first = Landing(str(tmp_path_factory.mktemp("landed")), SCHEMA, file_bytes=file_bytes), 0
        for count in counts:
            made.write(batch(first, count))
            first += count
        files = list(made.files())
    assert [n for file in files for n in pq.read_table(file.path)["n"].to_pylist()] == list(range(first))
    assert sum(file.rows for file in files) == first
    assert all(0 < size <= rows for file in files for size in groups(file.path))
