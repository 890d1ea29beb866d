"""What a piece of changes comes to for a table with a key, computed on whole columns (`changes.collapse` says what).

A change is known by its place in the piece. A row that goes is at 2·place, one that comes at 2·place + 1, so that an
update which changes the key first takes away, then puts. Keys are numbers here, the same number for the same bytes:
what Postgres takes for equal beyond that is told apart by the statements, which take away before they put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

INSERT, UPDATE, DELETE, TRUNCATE = range(4)
OPS = pa.array(["insert", "update", "delete", "truncate"])
NOWHERE = -1


@dataclass(frozen=True)
class Keys:
    """For each change the number of the key that its row has afterwards, and of the one that it had before."""

    new: Places
    old: Places
    count: int


@dataclass(frozen=True)
class Unsent:
    """What the puts lack because it was not sent."""

    value_at: dict[int, Places] = field(default_factory=dict)
    """By column: the change that has each put's value, NOWHERE when none has."""
    origin: Places = field(default_factory=lambda: np.empty(0, np.int64))
    """The change that names the row as the destination has it (by its old key); NOWHERE when it came within."""


@dataclass(frozen=True)
class Latest:
    """What is to be done."""

    puts: Places
    """Of each row that is there in the end, its last change."""
    stands: Flags
    """Of each put, whether the destination has a row under its key."""
    gone: Places
    """Changes whose old key has no row in the end."""
    unsent: Unsent | None = None


def op_codes(ops: pa.Array) -> npt.NDArray[np.int8]:
    found: npt.NDArray[np.int8] = pc.index_in(ops, value_set=OPS).to_numpy(zero_copy_only=False).astype(np.int8)
    return found


def number_keys(new: Sequence[pa.Array], old: Sequence[pa.Array], has_old: Flags) -> Keys:
    """Of columns that can be told apart by their bytes. Where a change has no old row its key has not changed."""
    numbers: Places | None = None
    count = 1
    for one, other in zip(new, old, strict=True):
        encoded = pa.chunked_array([one, other]).combine_chunks().dictionary_encode()
        ids = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        size = len(encoded.dictionary) + 1
        if numbers is None:
            numbers, count = ids, size
            continue
        kinds, numbers = np.unique(numbers * size + ids, return_inverse=True)
        numbers, count = numbers.astype(np.int64), len(kinds)
    assert numbers is not None, "a key has columns"
    half = len(numbers) // 2
    return Keys(numbers[:half], np.where(has_old, numbers[half:], numbers[:half]), count)


def latest(ops: npt.NDArray[np.int8], keys: Keys, lacking: dict[int, Flags]) -> Latest:
    """`lacking`: by column, which changes have no value for it, of columns for which some have none."""
    places = np.arange(len(ops))
    puts_key = ops != DELETE
    leaves = (ops == DELETE) | ((ops == UPDATE) & (keys.old != keys.new))
    last_put, first_put = _ends(keys.new[puts_key], places[puts_key], keys.count)
    last_left, first_left = _ends(keys.old[leaves], places[leaves], keys.count)
    is_put = (last_put != NOWHERE) & (last_put >= last_left)
    # The first that happens to a key tells whether there was a row: it leaves, or is updated where it stands.
    first_op = ops[np.maximum(first_put, 0)]
    same = ~leaves[np.maximum(first_put, 0)]
    updated = (first_put != NOWHERE) & (first_op == UPDATE) & same
    left_first = (first_left != NOWHERE) & ((first_put == NOWHERE) | (first_left <= first_put))
    puts = last_put[is_put]
    order = np.argsort(puts)
    stands = (left_first | updated)[is_put][order]
    puts = puts[order]
    unsent = _unsent(ops, keys, leaves, puts, lacking) if lacking else None
    return Latest(puts, stands, last_left[~is_put & (last_left != NOWHERE)], unsent)


def _ends(keys: Places, places: Places, count: int) -> tuple[Places, Places]:
    """The last and the first place of each key."""
    last, first = np.full(count, NOWHERE), np.full(count, NOWHERE)
    last[keys] = places  # of several the last stays
    first[keys[::-1]] = places[::-1]
    return last, first


def _unsent(ops: npt.NDArray[np.int8], keys: Keys, leaves: Flags, puts: Places, lacking: dict[int, Flags]) -> Unsent:
    before = _before(ops, keys, leaves)
    places = np.arange(len(ops))
    values = {}
    for column, lacks in lacking.items():
        values[column] = _followed(np.where(lacks, before, places))[puts]
    roots = _followed(np.where(before == NOWHERE, places, before))[puts]
    return Unsent(values, np.where(ops[roots] == INSERT, NOWHERE, roots))


def _before(ops: npt.NDArray[np.int8], keys: Keys, leaves: Flags) -> Places:
    """The change by which each updated row became what it was; NOWHERE when the destination has it."""
    places, puts_key = np.arange(len(ops)), ops != DELETE
    touched = np.concatenate([keys.old[leaves], keys.new[puts_key]])
    at = np.concatenate([2 * places[leaves], 2 * places[puts_key] + 1])
    order = np.lexsort((at, touched))
    touched, at = touched[order], at[order]
    ahead = np.full(len(at), NOWHERE)
    follows = touched[1:] == touched[:-1]
    ahead[1:][follows] = at[:-1][follows]
    came = np.where((ahead != NOWHERE) & (ahead % 2 == 1), ahead // 2, NOWHERE)
    found = np.full(len(ops), NOWHERE)
    # A change that leaves a key is named by that touch, any other by the one that puts.
    is_own = (at % 2 == 0) | ~leaves[at // 2]
    found[at[is_own] // 2] = came[is_own]
    return np.where(ops == UPDATE, found, NOWHERE)


def _followed(to: Places) -> Places:
    """Where each chain ends: at a place that points to itself, or NOWHERE."""
    chain: Places = np.append(np.where(to == NOWHERE, len(to), to), len(to))
    while True:
        further: Places = chain[chain]
        if np.array_equal(further, chain):
            break
        chain = further
    ends = chain[:-1]
    return np.where(ends == len(to), NOWHERE, ends)


def take(column: pa.Array, places: Places) -> pa.Array:
    """The values at the places; NULL for NOWHERE."""
    if not (places == NOWHERE).any():
        return column.take(pa.array(places))
    return column.take(pa.array(places, mask=places == NOWHERE))


def flags_of(array: pa.Array) -> Flags:
    """NULL is false."""
    found: Flags = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found


def chosen(column: pa.Array, flags: Flags) -> Any:
    return column.filter(pa.array(flags))
