"""SQL by which a Postgres database hashes and sums up the rows of a table: the source's, and one that is written to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from psycopg import sql

from walrelay.destinations.row_text import PostgresSide
from walrelay.destinations.verifying import KeyRanges
from walrelay.model.schema import Column

SIDE = PostgresSide()
KEY = sql.Identifier("_walrelay_key")
NEVER = sql.SQL("false")


def sums_sql(
    rows: sql.Composable, key: Sequence[Column], columns: Sequence[Column], special: sql.Composable, ranges: KeyRanges
) -> sql.Composed:
    """The range, how many rows, the sum of their hashes, and how many are `special`. `rows` is what follows FROM."""
    # OFFSET keeps Postgres from computing hashes twice.
    return sql.SQL(
        "SELECT {key} >> {shift}, count(*), sum(r), count(*) FILTER (WHERE s)"
        " FROM (SELECT {hash} AS {key}, {row} AS r, {special} AS s FROM {rows} OFFSET 0) AS hashed{where}"
        " GROUP BY 1"
    ).format(
        key=KEY,
        shift=sql.Literal(ranges.shift),
        hash=SIDE.row_hash(key),
        row=SIDE.row_hash(columns),
        special=special,
        rows=rows,
        where=where_sql(ranges),
    )


def rows_sql(
    rows: sql.Composable,
    key: Sequence[Column],
    columns: Sequence[Column],
    more: Sequence[sql.Composable],
    ranges: KeyRanges,
) -> sql.Composed:
    """Key and row as hashes, the columns in the form that is hashed, the columns as people read them, and more."""
    wanted = [KEY, SIDE.row_hash(columns), *(SIDE.column(one) for one in columns)]
    wanted += [SIDE.printed(one) for one in columns]
    return sql.SQL("SELECT {} FROM ({}) AS keyed{}").format(
        sql.SQL(", ").join([*wanted, *more]), keyed_sql(rows, key), where_sql(ranges)
    )


def keyed_sql(rows: sql.Composable, key: Sequence[Column]) -> sql.Composable:
    """The rows with the hash of their key."""
    return sql.SQL("SELECT *, {} AS {} FROM {} OFFSET 0").format(SIDE.row_hash(key), KEY, rows)


def numbers_sql(found: Collection[int]) -> sql.Composable:
    return sql.SQL("{}::int8[]").format(sql.Literal("{" + ",".join(map(str, sorted(found))) + "}"))


def where_sql(ranges: KeyRanges) -> sql.Composable:
    tests: list[sql.Composable] = []
    if ranges.chosen is not None:
        of_row = sql.SQL("{} >> {}").format(KEY, sql.Literal(ranges.shift))
        tests.append(sql.SQL("{} = ANY ({})").format(of_row, numbers_sql(ranges.chosen)))
    if ranges.keys is not None:
        tests.append(sql.SQL("{} = ANY ({})").format(KEY, numbers_sql(ranges.keys)))
    if ranges.leaving_out:
        # An anti-join, which is hashed in every version.
        left_out = sql.SQL("SELECT FROM unnest({}) AS o(h) WHERE o.h = {}").format(numbers_sql(ranges.leaving_out), KEY)
        tests.append(sql.SQL("NOT EXISTS ({})").format(left_out))
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(tests) if tests else sql.SQL("")
