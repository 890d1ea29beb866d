"""How a table is cut: ctid ranges from the size of its storage, the outer ones open-ended (SEMANTICS 9)."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.model.schema import TableLeaf, TableSchema

BLOCK_BYTES = 8192
WORTH_SPLITTING = 8 * 1024 * 1024
"""Bytes: below this a connection of its own costs more than it brings."""


@dataclass(frozen=True, slots=True)
class CtidRange:
    """Blocks [first, last) of one relation; None is open-ended."""

    leaf: TableLeaf
    first: int | None = None
    last: int | None = None


def plan_ranges(schema: TableSchema, *, range_bytes: int, max_ranges: int, parallelism: int) -> list[CtidRange]:
    """Ranges that cover every row of the table exactly once, whatever has been added since the size was read.

    A table worth splitting is cut into a multiple of `parallelism` pieces, so that no core waits for the others' last.
    """
    total = sum(leaf.stored_bytes for leaf in schema.leaves)
    size = max(range_bytes, total // max_ranges)
    if total > WORTH_SPLITTING * parallelism:
        rounds = -(-total // (size * parallelism))
        size = -(-total // (rounds * parallelism))
    return [part for leaf in schema.leaves for part in _cut(leaf, size)]


def _cut(leaf: TableLeaf, size: int) -> list[CtidRange]:
    blocks = max(1, -(-leaf.bytes // BLOCK_BYTES))
    # A block of small rows may stand for a megabyte of TOAST, but no range is smaller than a block.
    pieces = min(blocks, max(1, -(-leaf.stored_bytes // size)))
    edges = [blocks * k // pieces for k in range(1, pieces)]
    firsts: list[int | None] = [None, *edges]
    lasts: list[int | None] = [*edges, None]
    return [CtidRange(leaf, first, last) for first, last in zip(firsts, lasts, strict=True)]
