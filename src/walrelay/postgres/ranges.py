"""How a table is cut: ctid ranges from the size of its storage, the outer ones open-ended (SEMANTICS 9)."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.model.schema import TableLeaf, TableSchema

BLOCK_BYTES = 8192


@dataclass(frozen=True, slots=True)
class CtidRange:
    """Blocks [first, last) of one relation; None is open-ended."""

    leaf: TableLeaf
    first: int | None = None
    last: int | None = None


def plan_ranges(schema: TableSchema, *, range_bytes: int, max_ranges: int, parallelism: int) -> list[CtidRange]:
    """Ranges that cover every row of the table exactly once, whatever has been added since the size was read.

    A table worth splitting is cut into at least `parallelism` pieces, so that no core is idle.
    """
    total = sum(leaf.bytes for leaf in schema.leaves)
    size = max(range_bytes, total // max_ranges)
    worth_splitting = 16 * BLOCK_BYTES * 64
    if total > worth_splitting * parallelism:
        size = min(size, max(total // parallelism, worth_splitting))
    return [part for leaf in schema.leaves for part in _cut(leaf, size)]


def _cut(leaf: TableLeaf, size: int) -> list[CtidRange]:
    blocks = max(1, -(-leaf.bytes // BLOCK_BYTES))
    pieces = max(1, -(-leaf.bytes // size))
    edges = [blocks * k // pieces for k in range(1, pieces)]
    firsts: list[int | None] = [None, *edges]
    lasts: list[int | None] = [*edges, None]
    return [CtidRange(leaf, first, last) for first, last in zip(firsts, lasts, strict=True)]
