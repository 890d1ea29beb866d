"""Positions in the write-ahead log."""

from __future__ import annotations


class Lsn(int):
    """A WAL position; prints as Postgres prints it: `Lsn(0x16B3748)` → `0/16B3748`."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        high, slash, low = text.partition("/")
        if not slash:
            raise ValueError(f"not an LSN: {text!r}")
        return cls((int(high, 16) << 32) | int(low, 16))
