"""What a decoder is: fields in, Arrow array out, special values tallied, one error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.errors import BadBytesError, SpecialKeyError, SpecialValueError
from walrelay.model.special import Special, SpecialValues

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Fields:
    """One column's values in a buffer of received bytes. A length of -1 is NULL. Every range lies within the buffer."""

    buf: Bytes
    starts: Positions
    lengths: Positions

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, values: list[bytes | None]) -> Fields:
        """The fields for a list of values, laid one after the other; for tests and small jobs."""
        lengths = np.array([-1 if v is None else len(v) for v in values], dtype=np.int32)
        starts = np.zeros(len(values), dtype=np.int32)
        np.cumsum(np.maximum(lengths, 0)[:-1], out=starts[1:])
        buf = np.frombuffer(bytearray(b"".join(v for v in values if v is not None) or b"\0"), dtype=np.uint8)
        return cls(buf, starts, lengths)


@dataclass(frozen=True, slots=True)
class Target:
    """What the reader of the Arrow columns can hold, as data; a destination states its own."""

    name: str
    holds: frozenset[Special] = frozenset()
    uuid_as_text: bool = False
    time_as_text: bool = False
    dates_as_text: bool = False


ARROW = Target("arrow", frozenset({Special.TIMESTAMP_INFINITY, Special.DATE_INFINITY, Special.INTERVAL_INFINITY}))
TEXT = Target("text", ARROW.holds, uuid_as_text=True, time_as_text=True, dates_as_text=True)


@dataclass(slots=True)
class Tally:
    """What to do with special values, and how many of each were treated."""

    target: Target = ARROW
    special_values: SpecialValues = "null"
    counts: Counter[Special] = field(default_factory=Counter)
    of_keys: bool = False
    """Whether the column tells rows apart: no policy holds for it."""

    def for_keys(self) -> Tally:
        """The same for a column of the key, whose values are never treated: rows would no longer be told apart."""
        return Tally(self.target, "error", self.counts, of_keys=True)

    def treat(self, special: Special, count: int) -> None:
        """Record `count` treated values; raises when the policy is `error`."""
        if count == 0:
            return
        if self.of_keys:
            raise SpecialKeyError(
                f"a key that the destination's type cannot hold: {special.value}",
                context={"special": special.name},
            )
        if self.special_values == "error":
            raise SpecialValueError(
                f"a value the destination's type cannot hold: {special.value}",
                context={"special": special.name},
            )
        self.counts[special] += count

    def mode(self, special: Special) -> int:
        """What kernels need to know: 0 keep the value, 1 make it NULL, 2 clamp it."""
        if special in self.target.holds:
            return KEEP
        return CLAMP if self.special_values == "clamp" else NULL


KEEP, NULL, CLAMP = 0, 1, 2


class Decoder(Protocol):
    """Decodes columns of one type. Obligations: pure; never reads outside a field; bad bytes raise `BadBytesError`."""

    @property
    def arrow_type(self) -> pa.DataType: ...

    def decode(self, fields: Fields, tally: Tally) -> pa.Array: ...


def bad_field(fields: Fields, row: int, reason: str) -> BadBytesError:
    """The one error for a field whose bytes are wrong; `position` is where the field starts in its buffer."""
    return BadBytesError(reason, position=int(fields.starts[row]), context={"row": int(row)})


def bitmap(valid: npt.NDArray[Any]) -> pa.Buffer | None:
    """An Arrow validity bitmap, or None when all are valid."""
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def bits(values: npt.NDArray[Any]) -> pa.Buffer:
    """An Arrow bitmap of 0/1 bytes."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))
