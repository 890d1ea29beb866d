"""Which transactions a snapshot sees (SEMANTICS 8): what `pg_visible_in_snapshot` says, for the xids of a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_FORM = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)\Z")
_EPOCH = 1 << 32
HALF_EPOCH = 1 << 31
"""32 bits of an xid say which is meant only among those less than so many away."""
_FIRST_NORMAL = 3
"""Smaller xids are Postgres's own: invalid, bootstrap, frozen. No transaction of a stream has one."""


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """A `pg_snapshot`: all transactions before `xmin` are seen, none from `xmax` on, and in between those not listed.

    The three are 64-bit xids, which never wrap; only top-level transactions are listed, as in BEGIN messages.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> VisibleTransactions:
        """From the text of `pg_current_snapshot()`: `xmin:xmax:xip,xip,…`."""
        match = _FORM.match(text)
        if match is None:
            raise ValueError(f"not a snapshot: {text!r}")
        listed = frozenset(int(xid) for xid in match[3].split(",") if xid)
        xmin, xmax = int(match[1]), int(match[2])
        if not xmin <= xmax or any(not xmin <= xid < xmax for xid in listed):
            raise ValueError(f"not a snapshot: {text!r}")
        return cls(xmin, xmax, listed)

    def widen(self, xid32: int) -> int:
        """The 64-bit xid: of those with these 32 bits, the one nearest to `xmax`.

        Exact for transactions within 2³¹ of the snapshot. Postgres itself lets no two live ones be further apart; a log
        reaches further back, so that whoever asks about its transactions leaves out older ones by their position first
        (`log/xids.py`).
        """
        if not _FIRST_NORMAL <= xid32 < _EPOCH:
            raise ValueError(f"not the 32-bit xid of a transaction: {xid32}")
        ahead = (xid32 - self.xmax) % _EPOCH
        xid = self.xmax + ahead - (_EPOCH if ahead >= HALF_EPOCH else 0)
        # Before epoch 0 there was nothing, so it is still to come.
        return xid if xid >= 0 else xid + _EPOCH

    def sees(self, xid32: int) -> bool:
        """Whether a transaction that committed is seen, given the 32-bit xid of its BEGIN."""
        xid = self.widen(xid32)
        return xid < self.xmin or (xid < self.xmax and xid not in self.in_progress)


_parsed = lru_cache(maxsize=64)(VisibleTransactions.parse)


def visible(xid32: int, snapshot_text: str) -> bool:
    """Whether the snapshot, as `pg_current_snapshot()` prints it, sees the committed transaction `xid32`."""
    return _parsed(snapshot_text).sees(xid32)


def unseen_sql(snapshot: str) -> str:
    """SQL for «the snapshot does not see this transaction»: `VisibleTransactions.sees`, set-wise."""
    seen = _parsed(snapshot)
    ahead = f"(((xid - {seen.xmax}) % {_EPOCH} + {_EPOCH}) % {_EPOCH})"
    near = f"({seen.xmax} + {ahead} - CASE WHEN {ahead} >= {HALF_EPOCH} THEN {_EPOCH} ELSE 0 END)"
    wide = f"({near} + CASE WHEN {near} < 0 THEN {_EPOCH} ELSE 0 END)"
    listed = ", ".join(map(str, sorted(seen.in_progress)))
    open_then = f" OR {wide} IN ({listed})" if listed else ""
    return f"({wide} >= {seen.xmax}{open_then})"
