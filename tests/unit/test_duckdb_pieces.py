"""Where a copy's landed files are cut: every row in one piece, and row groups full."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from walrelay.changes.rows import LandedFile
from walrelay.destinations.duckdb.pieces import FILE_NAME, PIECE_ROWS, ROW_BYTES, Piece, cut, cut_groups, plan
from walrelay.destinations.landing import GROUP_ROWS
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema

SCHEMA = TableSchema(
    7, TableName("public", "Orders"), (Column("id", PgType(23, "int4")), Column("note", PgType(25, "text")))
)


def test_pieces_hold_every_row_once() -> None:
    files = [LandedFile("a", 10, 100), LandedFile("b", 20, 100), LandedFile("c", 1_000, 30_000), LandedFile("d", 1, 9)]
    *slices, rest = cut(SCHEMA, files, 10_000)
    assert {piece.paths for piece in slices} == {("c",)} and len(slices) == 10
    assert [piece.first for piece in slices] == [sum(one.rows for one in slices[:n]) for n in range(10)]
    assert sum(piece.rows for piece in slices) == 1_000
    assert rest == Piece(("a", "b", "d"), 31)


@given(
    st.lists(st.integers(0, 1_000_000), min_size=1, max_size=6),
    st.integers(0, 2_000),
    st.integers(1, 10**9),
    st.integers(1, 500_000),
)
def test_pieces_hold_every_row_once_in_order(counts: list[int], width: int, piece_bytes: int, piece_rows: int) -> None:
    assume(sum(counts) * (width + ROW_BYTES) // piece_bytes < 5_000)
    files = [LandedFile(str(number), rows, rows * width) for number, rows in enumerate(counts)]
    held = {file.path: 0 for file in files}
    for piece in cut(SCHEMA, files, piece_bytes, piece_rows):
        if piece.first is None:
            assert piece.rows == sum(counts[int(path)] for path in piece.paths)
            for path in piece.paths:
                held[path] += counts[int(path)]
        else:
            (path,) = piece.paths
            assert piece.first == held[path] and piece.rows > 0
            held[path] += piece.rows
    assert list(held.values()) == counts


def test_pieces_are_whole_row_groups_however_wide_the_rows_are() -> None:
    file = LandedFile("a", 10 * PIECE_ROWS + 5, 10 * PIECE_ROWS * 4_000)
    pieces = cut(SCHEMA, [file], 1_000_000, PIECE_ROWS)
    assert [piece.rows for piece in pieces] == [PIECE_ROWS] * 9 + [PIECE_ROWS + 5]
    small = [LandedFile(str(number), 60_000, 10**9) for number in range(20)]
    assert {len(piece.paths) for piece in cut(SCHEMA, small, 1_000_000, PIECE_ROWS)[:-1]} == {-(-PIECE_ROWS // 60_000)}


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=8),
    st.integers(0, 2_000),
    st.integers(1, 10**6),
    st.integers(1, 5),
    st.integers(1, 50),
)
def test_pieces_of_whole_groups_hold_every_row_once_in_order(
    counts: list[int], width: int, piece_bytes: int, threads: int, group_rows: int
) -> None:
    assume(sum(counts) >= group_rows)
    files = [LandedFile(str(number), rows, rows * width) for number, rows in enumerate(counts)]
    pieces = cut_groups(files, piece_bytes, threads, group_rows)
    found = []
    for piece in pieces:
        assert piece.first is not None and piece.end is not None and piece.by_one_thread
        for path in piece.paths:
            first = piece.first if path == piece.paths[0] else 0
            end = piece.end if path == piece.paths[-1] else counts[int(path)]
            assert first < end
            found += [(int(path), row) for row in range(first, end)]
    assert found == [(number, row) for number, rows in enumerate(counts) for row in range(rows)]
    assert [len(found)] == [sum(piece.rows for piece in pieces)]
    assert not any(piece.rows % group_rows for piece in pieces[:-1])
    assert pieces[-1].rows >= group_rows, "less is not written until a checkpoint, while everybody waits"
    assert len(pieces) % threads == 0 or len(pieces) == sum(counts) // group_rows


def test_wide_rows_are_loaded_by_as_many_threads_as_there_are() -> None:
    files = [LandedFile(str(number), 65_000, 270_000_000) for number in range(30)]
    steps = plan(SCHEMA, files, threads=4, others_wait=True)
    assert [len(pieces) for pieces in steps.rounds] == [4, 4, 4, 3] and not steps.in_order
    assert {piece.rows for pieces in steps.rounds for piece in pieces[:-1]} == {GROUP_ROWS}


def test_wide_rows_of_less_than_a_row_group_are_one_piece() -> None:
    steps = plan(SCHEMA, [LandedFile("a", GROUP_ROWS - 1, 10**9)], threads=4, others_wait=True)
    assert steps.rounds == [[Piece(("a",), GROUP_ROWS - 1)]]


def test_a_table_with_a_column_of_duckdbs_own_name_is_not_sliced() -> None:
    schema = TableSchema(7, TableName("public", "t"), (Column("File_Row_Number", PgType(23, "int4")),))
    assert cut(schema, [LandedFile("c", 1_000, 30_000)], 10_000) == [Piece(("c",), 1_000)]
    wide = [LandedFile(str(number), GROUP_ROWS, 10**9) for number in range(9)]
    for name in ("File_Row_Number", FILE_NAME):
        schema = TableSchema(7, TableName("public", "t"), (Column(name, PgType(23, "int4")),))
        for pieces in plan(schema, wide, threads=1, others_wait=True).rounds:
            assert [piece.first for piece in pieces] == [None]
