"""Ranges cover a table exactly once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from walrelay.model.names import TableName
from walrelay.model.ranges import BLOCK_BYTES, CtidRange, plan_ranges
from walrelay.model.schema import Column, PgType, TableLeaf, TableSchema
from walrelay.postgres.copy import copy_statement


def table(*sizes: int, row_filter: str | None = None) -> TableSchema:
    leaves = tuple(TableLeaf(k, TableName("public", f"leaf{k}"), size, size) for k, size in enumerate(sizes))
    column = Column('a"b', PgType(23, "int4"))
    return TableSchema(1, TableName("public", "t"), (column,), row_filter=row_filter, leaves=leaves)


@given(
    st.lists(st.integers(0, 2**40).map(lambda n: n // BLOCK_BYTES * BLOCK_BYTES), min_size=1, max_size=5),
    st.integers(2**20, 2**30),
    st.integers(1, 64),
)
def test_ranges_join_without_gap_or_overlap_and_are_open_at_the_ends(sizes: list[int], size: int, cores: int) -> None:
    ranges = plan_ranges(table(*sizes), range_bytes=size, max_ranges=1024, parallelism=cores)
    assert len(ranges) <= 1024 + 2 * len(sizes) + cores
    for leaf in table(*sizes).leaves:
        own = [part for part in ranges if part.leaf == leaf]
        assert own[0].first is None and own[-1].last is None
        for left, right in pairwise(own):
            assert left.last is not None and left.last == right.first
            assert right.last is None or right.first < right.last


def test_an_empty_table_is_one_range_and_a_small_one_is_not_split() -> None:
    for size in (0, BLOCK_BYTES):
        assert len(plan_ranges(table(size), range_bytes=2**26, max_ranges=1024, parallelism=8)) == 1


def test_a_table_worth_it_is_split_over_all_cores() -> None:
    assert len(plan_ranges(table(2**28), range_bytes=2**30, max_ranges=1024, parallelism=8)) >= 8


def test_toast_counts_in_the_size_of_a_range() -> None:
    leaf = TableLeaf(1, TableName("public", "t"), 100 * BLOCK_BYTES, 2**30)
    schema = TableSchema(1, leaf.name, (), leaves=(leaf,))
    ranges = plan_ranges(schema, range_bytes=2**26, max_ranges=1024, parallelism=2)
    assert len(ranges) == 16 and ranges[-1].first == 93
    assert len(plan_ranges(schema, range_bytes=2**20, max_ranges=10_000, parallelism=2)) == 100


def test_the_statement_quotes_names_and_keeps_the_filter_whole() -> None:
    schema = table(0, row_filter="(kind = 'a'::text)")
    statement = copy_statement(schema, CtidRange(schema.leaves[0], 3, 9)).as_string(None)
    assert statement == (
        'COPY (SELECT "a""b" FROM ONLY "public"."leaf0" WHERE ctid >= \'(3,0)\' AND ctid < \'(9,0)\''
        " AND ((kind = 'a'::text))) TO STDOUT (FORMAT binary)"
    )
