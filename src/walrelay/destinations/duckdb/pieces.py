"""How a table's landed files are cut into pieces that DuckDB loads one after the other, or some at the same time.

All of it is about full row groups. Those that DuckDB finds half full it joins at the next checkpoint, while everybody
waits (decision 0006).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from walrelay.changes.rows import LandedFile
from walrelay.destinations.landing import GROUP_BYTES, GROUP_ROWS
from walrelay.model.schema import TableSchema

PIECE_BYTES = 192 * 1024 * 1024
"""Of landed files for each of DuckDB's threads: some seconds, in which no other process gets the file."""
ROW_BYTES = 64
"""As many bytes more would take DuckDB as long as a row does, whatever is in it."""
PIECE_ROWS = 4 * GROUP_ROWS
"""Of a piece for each thread, however narrow the rows are: where DuckDB finds two row groups half full and fewer than
three full ones between them, it joins them, anew after each piece."""
ROW_NUMBER, FILE_NAME = "file_row_number", "_walrelay_file_name"
"""DuckDB's columns for a row's place; it refuses to add them to files that have columns of these names."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole files, or what of files that follow each other is between two rows."""

    paths: tuple[str, ...]
    rows: int
    first: int | None = None
    """Number of the first row in the first file."""
    end: int | None = None
    """Number of the row after the last one in the last file."""
    by_one_thread: bool = False
    """Which then fills one row group after the other."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is loaded. Those of a round at the same time; between two rounds the file is let go."""

    rounds: list[list[Piece]]
    in_order: bool = True
    """Full row groups of the files are then taken as they are. Of others DuckDB makes full ones faster when each of its
    threads takes what comes."""

    @property
    def pieces(self) -> int:
        return sum(map(len, self.rounds))

    @property
    def only(self) -> Piece | None:
        """The only piece, or None where there is nothing to load."""
        if not self.rounds:
            return None
        ((piece,),) = self.rounds
        return piece


def plan(
    schema: TableSchema, files: Sequence[LandedFile], *, threads: int, others_wait: bool, piece_bytes: int | None = None
) -> Plan:
    """For all rows of the files; `piece_bytes` for pieces of this size, whatever is best."""
    narrow = _has_full_groups(files)
    if piece_bytes is None and not narrow and _may_slice(schema) and sum(file.rows for file in files) >= GROUP_ROWS:
        pieces = cut_groups(files, PIECE_BYTES, threads)
        return Plan([pieces[n : n + threads] for n in range(0, len(pieces), threads)], in_order=False)
    if not others_wait:
        pieces = [_whole(files)] if files else []
    elif piece_bytes is None:
        pieces = cut(schema, files, PIECE_BYTES * threads, PIECE_ROWS * threads)
    else:
        pieces = cut(schema, files, piece_bytes)
    return Plan([[piece] for piece in pieces], in_order=narrow)


def weight(files: Sequence[LandedFile]) -> int:
    """The bytes of the files, and what their rows add to the work."""
    return sum(file.bytes + ROW_BYTES * file.rows for file in files)


def cut_groups(
    files: Sequence[LandedFile], piece_bytes: int, threads: int, group_rows: int = GROUP_ROWS
) -> list[Piece]:
    """Pieces of whole row groups, for so many threads with a piece each; the last one has the rest, too, which would
    not be written at once if it came alone. A group may take `piece_bytes` several times: rows are that wide."""
    rows = sum(file.rows for file in files)
    groups = rows // group_rows
    count = min(-(-weight(files) // piece_bytes), groups)
    count = min(-(-count // threads) * threads, groups)
    ends = [0, *(-(-groups * number // count) * group_rows for number in range(1, count)), rows]
    return [_between(files, start, end) for start, end in itertools.pairwise(ends)]


def _between(files: Sequence[LandedFile], start: int, end: int) -> Piece:
    """The rows from `start` to `end`, counted through all files."""
    paths: list[str] = []
    first, last, before = 0, 0, 0
    for file in files:
        if max(before, start) < min(before + file.rows, end):
            first = first if paths else start - before
            last = min(file.rows, end - before)
            paths.append(file.path)
        before += file.rows
    return Piece(tuple(paths), end - start, first, last, by_one_thread=True)


def cut(schema: TableSchema, files: Sequence[LandedFile], piece_bytes: int, piece_rows: int = 1) -> list[Piece]:
    """Pieces of `piece_bytes` or little more, and of a multiple of `piece_rows` or little more."""
    return list(_cut(files, piece_bytes, piece_rows, _may_slice(schema)))


def _cut(files: Sequence[LandedFile], piece_bytes: int, piece_rows: int, may_slice: bool) -> Iterator[Piece]:
    together: list[LandedFile] = []
    for file in files:
        slices = -(-weight([file]) // piece_bytes)
        step = -(-file.rows // max(slices, 1) // piece_rows) * piece_rows
        if may_slice and file.rows > step:
            firsts = range(0, file.rows - step // 2, step)  # what is less than half a piece goes with the last one
            for first, end in itertools.pairwise([*firsts, file.rows]):
                yield Piece((file.path,), end - first, first, end)
            continue
        whole = _whole(together)
        if whole.rows >= piece_rows and weight([*together, file]) > piece_bytes:
            yield whole
            together = []
        together.append(file)
    if together:
        yield _whole(together)


def _whole(files: Sequence[LandedFile]) -> Piece:
    return Piece(tuple(file.path for file in files), sum(file.rows for file in files))


def _may_slice(schema: TableSchema) -> bool:
    return all(column.name.lower() not in (ROW_NUMBER, FILE_NAME) for column in schema.columns)


def _has_full_groups(files: Sequence[LandedFile]) -> bool:
    """Whether the rows were narrow enough to be landed in full row groups."""
    return sum(file.bytes for file in files) <= GROUP_BYTES // GROUP_ROWS * sum(file.rows for file in files)
