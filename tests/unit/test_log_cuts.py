"""A long way through the log, cut into pieces."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from walrelay.log.cuts import cuts
from walrelay.log.manifest import DataFile, Entry, data_path
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn

PIECE = 100


class Log(LogView):
    """Segment n covers the LSNs after 1000 n up to 1000 (n + 1); table 7 has so many bytes in it, table 8 ten."""

    def __init__(self, sizes: list[int], transactions: int = 50) -> None:
        super().__init__(Path("nowhere"))
        self._entries = [self._entry(number, size, transactions) for number, size in enumerate(sizes, 1)]

    @staticmethod
    def _entry(number: int, size: int, transactions: int) -> Entry:
        start, end = Lsn(number * 1000), Lsn(number * 1000 + 1000)
        files = tuple(
            DataFile(data_path(number, number, 1, table, 1), table, "t", 1, 1, bytes_, Lsn(start + 1), end)
            for table, bytes_ in ((7, size), (8, 10))
        )
        return Entry(number, number, start, end, transactions, 2, size + 10, 0, 0.0, files)

    def entries(self, after: Lsn | None = None, to: Lsn | None = None) -> list[Entry]:
        assert after is not None and to is not None
        return [one for one in self._entries if one.end_lsn > after and one.start_lsn < to]


def ends(log: Log, after: int, to: int, *, inside: bool = False) -> list[int]:
    return [int(end) for end in cuts(log, Lsn(after), Lsn(to), PIECE, {7}, inside=inside)]


def test_segments_are_kept_together_where_they_fit() -> None:
    assert ends(Log([40, 40, 40, 90, 5, 5]), 1000, 7000) == [3000, 4000, 7000]


def test_a_large_segment_is_a_piece_of_its_own_or_cut_within() -> None:
    log = Log([40, 300, 40])
    assert ends(log, 1000, 4000) == [2000, 3000, 4000]
    assert ends(log, 1000, 4000, inside=True) == [2000, 2333, 2666, 3000, 4000]


def test_one_large_transaction_is_not_cut() -> None:
    assert ends(Log([10_000], transactions=1), 1000, 2000, inside=True) == [2000]


def test_nothing_to_go_is_one_empty_piece() -> None:
    assert ends(Log([40]), 2000, 2000) == [2000]


@given(st.lists(st.integers(0, 400), max_size=12), st.booleans(), st.data())
def test_pieces_are_in_order_and_end_where_they_should(sizes: list[int], inside: bool, data: st.DataObject) -> None:
    last = 1000 * (len(sizes) + 1)
    after = data.draw(st.integers(1000, last))
    to = data.draw(st.integers(after, last))
    found = ends(Log(sizes), after, to, inside=inside)
    assert found[-1] == to
    assert all(before < later for before, later in itertools.pairwise([after, *found[:-1]]))
    assert all(end <= to for end in found)
    whole = [number for number in range(1, len(sizes) + 1) if after <= number * 1000 and (number + 1) * 1000 <= to]
    for low, high in itertools.pairwise([after, *found]):
        held = [sizes[number - 1] for number in whole if low <= number * 1000 and (number + 1) * 1000 <= high]
        held = [size for size in held if size]  # those without the table may go with any
        assert len(held) <= 1 or sum(held) <= PIECE
