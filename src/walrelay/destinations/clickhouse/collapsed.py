"""What a table's changes in a batch come to, as Arrow, whichever lane has made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from walrelay.model.special import Special


@dataclass(frozen=True)
class Collapsed:
    """With a key, a row for each key: `is_put`, `lsn` and `ordinal` of what happened last, the key's columns `k0`…, and
    all columns of the row `n0`… Where values were left out: `l0`…, whether the row lacks the value; `o0`…, the key
    under which the destination holds it; `came`: the row came within the batch, so that it holds nothing. Without a
    key, a row for each that comes or goes: `sign`, `lsn`, `ordinal`, `n0`…"""

    changes: int = 0
    truncated: bool = False
    """Whether all that was there before goes first."""
    takes_away: bool = False
    """Without a key: whether some rows go."""
    lacking: tuple[int, ...] = ()
    treated: Counter[Special] = field(default_factory=Counter)
    bytes: int = 0
    """About how much it is."""
    batches: Callable[[], Iterator[pa.RecordBatch]] = lambda: iter(())
