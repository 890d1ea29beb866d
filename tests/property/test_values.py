"""What Postgres stores is decoded as Postgres prints it; however the stream is cut, its rows are the same."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.roundtrip.compare import printed_by_postgres, read_back
from walrelay.decode.base import Tally
from walrelay.decode.table import TableDecoder
from walrelay.destinations.duckdb.dialect import DUCKDB, projection
from walrelay.model.names import TableName
from walrelay.model.ranges import plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import Connection, connect
from walrelay.postgres.copy import copy_rows
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.wire.copy_binary import SIGNATURE, CopyBuffer

SAMPLE = TableName("public", "sample")
MANY = 200
few_examples = settings(
    max_examples=8,
    deadline=None,
    # An example is a batch of values, and the assertion names those that are wrong: nothing to shrink.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.too_slow],
)


def many(values: st.SearchStrategy[Any], count: int = MANY) -> st.SearchStrategy[list[Any]]:
    """So many values an example that few examples are enough; some are NULL."""
    return st.lists(st.one_of(values, values, values, st.none()), min_size=count, max_size=count)


# ------------------------------------------------------------------------------------------------------- the source


class Bench:
    """A Postgres with a table of one value a row, and a DuckDB in memory for what was decoded."""

    def __init__(self, connection: Connection) -> None:
        self.postgres = connection
        self.duckdb = duckdb.connect()
        self.duckdb.execute("CREATE SCHEMA public")

    def store(self, type_: str, values: list[Any]) -> None:
        """Put the values into the table: texts in the type's syntax, or all in its binary form."""
        self.postgres.execute("DROP TABLE IF EXISTS sample")
        self.postgres.execute(f"CREATE TABLE sample (id int4, value {type_})".encode())
        if any(isinstance(value, bytes) for value in values):
            rows = [[struct.pack(">i", row), value] for row, value in enumerate(values)]
            with self.postgres.cursor().copy("COPY sample FROM STDIN (FORMAT binary)") as copy:
                copy.write(b"".join(messages(rows)))
        else:
            with self.postgres.cursor().copy("COPY sample FROM STDIN") as copy:
                for row in enumerate(values):
                    copy.write_row(row)

    def decode(self, chunk_bytes: int) -> tuple[TableSchema, pa.Table, Counter[Special]]:
        schema = read_schema(self.postgres, find_table(self.postgres, SAMPLE))
        (part,) = plan_ranges(schema, range_bytes=2**40, max_ranges=1, parallelism=1)
        decoder = TableDecoder(schema, Tally(DUCKDB))
        chunks = copy_rows(self.postgres, schema, part, chunk_bytes=chunk_bytes)
        batches = [decoder.decode(rows) for rows in chunks]
        return schema, pa.Table.from_batches(batches, decoder.arrow_schema), decoder.tally.counts

    def compare(self, chunk_bytes: int = 65_536, treated: dict[Special, int] | None = None) -> None:
        """What was decoded is what Postgres prints, but for as many NULLs as values had to be treated."""
        schema, decoded, counts = self.decode(chunk_bytes)
        column = schema.column("value")
        self.duckdb.register("decoded", decoded)
        self.duckdb.execute(
            f"CREATE OR REPLACE TABLE public.sample AS SELECT id, {projection(column, 'value')} AS value FROM decoded"
        )
        held = read_back(self.duckdb, SAMPLE, column)
        printed = printed_by_postgres(self.postgres, SAMPLE)
        wrong = [(row, *both) for row, both in enumerate(zip(held, printed, strict=True)) if both[0] != both[1]]
        expected = {special: count for special, count in (treated or {}).items() if count}
        assert counts == expected
        assert sum(expected.values()) == sum(1 for _, value, _ in wrong if value is None)
        assert [both for both in wrong if both[1] is not None] == []


@pytest.fixture(scope="module")
def bench(postgres18: EmbeddedPostgres) -> Iterator[Bench]:
    with connect(PostgresSource(postgres18.create_database("properties"))) as connection:
        connection.prepare_threshold = None  # the same query has another type next time
        connection.execute(
            "CREATE TYPE item AS (number int4, word text, amount numeric(10,2), at timestamptz, tags text[]);"
            "CREATE TYPE nest AS (item item, items item[], lasts interval);"
            'CREATE TYPE textrange AS RANGE (subtype = text, collation = "C")'
        )
        yield Bench(connection)


chunk_sizes = st.sampled_from([64, 1000, 65_536])

# ------------------------------------------------------------------------------------------------- values of a type

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
words = st.text(letters, max_size=30)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def numerics(draw: st.DrawFn) -> str:
    """A numeric of any size, as text."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.sampled_from(["NaN", "Infinity", "-Infinity"]))
    digits = st.text("0123456789", max_size=draw(st.sampled_from([4, 9, 60])))
    exponent = draw(st.sampled_from(["", "", "e-7", "e9", "e-300", "e250"]))
    return f"{draw(st.sampled_from(['', '-']))}0{draw(digits)}.{draw(digits)}0{exponent}"


def scaled(unscaled: int, scale: int) -> str:
    return f"{unscaled}e{-scale}"


moments = st.datetimes().map(datetime.isoformat)
lapses = st.builds("{} mons {} days {} us".format, integers(31), integers(31), integers(50))


def quoted(text: str, doubling: bool) -> str:
    for special in '\\"':
        text = text.replace(special, (special if doubling else "\\") + special)
    return f'"{text}"'


def array_literal(items: list[Any]) -> str:
    parts = (
        array_literal(item) if isinstance(item, list) else "NULL" if item is None else quoted(item, doubling=False)
        for item in items
    )
    return "{" + ",".join(parts) + "}"


def record_literal(parts: tuple[str | None, ...]) -> str:
    return "(" + ",".join("" if part is None else quoted(part, doubling=True) for part in parts) + ")"


def arrays(elements: st.SearchStrategy[str], dimensions: int) -> st.SearchStrategy[str]:
    """Arrays of exactly so many dimensions, or empty; elements may be NULL."""

    def of_shape(shape: tuple[int, ...]) -> st.SearchStrategy[list[Any]]:
        inner = of_shape(shape[1:]) if len(shape) > 1 else st.none() | elements
        return st.lists(inner, min_size=shape[0], max_size=shape[0])

    shapes = st.tuples(*[st.integers(1, 3)] * dimensions)
    return st.just("{}") | shapes.flatmap(of_shape).map(array_literal)


@st.composite
def ranges(draw: st.DrawFn, bounds: st.SearchStrategy[Any]) -> str:
    if draw(st.integers(0, 9)) == 0:
        return "empty"
    lower, upper = sorted([draw(bounds), draw(bounds)])
    lower, upper = (draw(st.sampled_from(["", quoted(str(bound), doubling=True)])) for bound in (lower, upper))
    return f"{draw(st.sampled_from('[('))}{lower},{upper}{draw(st.sampled_from(')]'))}"


def nullable(values: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.none() | values


items = st.tuples(
    nullable(integers(32).map(str)),
    nullable(words),
    nullable(st.integers(-(10**10) + 1, 10**10 - 1).map(lambda number: scaled(number, 2))),
    nullable(moments),
    nullable(arrays(words, 1)),
).map(record_literal)
ELEMENTS = {
    "int4": integers(32).map(str),
    "text": words,
    "numeric": numerics(),
    "timestamptz": moments,
    "interval": lapses,
    "item": items,
}
BOUNDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**62), 2**62),
    "num": st.decimals(-(10**30), 10**30, places=5),
    "tstz": st.datetimes(),
    "date": st.dates(),
    "text": words,
}
nests = st.tuples(nullable(items), nullable(arrays(items, 1)), nullable(lapses)).map(record_literal)


def documents(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    trees = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=6
    )
    return st.builds(
        lambda tree, ascii_only, indent: json.dumps(tree, ensure_ascii=ascii_only, indent=indent),
        trees, st.booleans(), st.sampled_from([None, 1]),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- properties


@pytest.mark.postgres
@pytest.mark.parametrize(("type_", "bits"), [("int2", 16), ("int4", 32), ("int8", 64)])
@few_examples
@given(data=st.data(), chunk_bytes=chunk_sizes)
def test_integers(type_: str, bits: int, data: st.DataObject, chunk_bytes: int, bench: Bench) -> None:
    bench.store(type_, data.draw(many(integers(bits).map(str))))
    bench.compare(chunk_bytes)


@pytest.mark.postgres
@pytest.mark.parametrize(("type_", "bits"), [("float4", 32), ("float8", 64)])
@few_examples
@given(data=st.data())
def test_floats_of_any_bit_pattern(type_: str, bits: int, data: st.DataObject, bench: Bench) -> None:
    patterns = data.draw(many(st.integers(0, 2**bits - 1).map(lambda pattern: pattern.to_bytes(bits // 8, "big"))))
    bench.store(type_, patterns)
    _, decoded, _ = bench.decode(65_536)
    stored = bench.postgres.execute(f"SELECT {type_}send(value) AS bits FROM sample ORDER BY id".encode()).fetchall()
    seen = decoded["value"].combine_chunks().view(pa.int32() if bits == 32 else pa.int64()).to_pylist()
    assert [None if value is None else value.to_bytes(bits // 8, "big", signed=True) for value in seen] == patterns
    assert [row.bits for row in stored] == patterns


@pytest.mark.postgres
@few_examples
@given(values=many(numerics()), chunk_bytes=chunk_sizes)
def test_numerics_of_any_size(values: list[str | None], chunk_bytes: int, bench: Bench) -> None:
    bench.store("numeric", values)
    bench.compare(chunk_bytes)


@pytest.mark.postgres
@settings(few_examples, max_examples=25)
@given(data=st.data())
def test_numerics_of_any_precision_and_scale(data: st.DataObject, bench: Bench) -> None:
    precision = data.draw(st.integers(1, 40), "precision")
    scale = data.draw(st.integers(-5, precision + 5), "scale")
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-9, 9)
    values = data.draw(many(unscaled.map(lambda number: scaled(number, scale)) | st.just("NaN"), 60))
    bench.store(f"numeric({precision},{scale})", values)
    held_as_decimal = max(precision + max(-scale, 0), scale) <= 38
    bench.compare(treated={Special.NUMERIC_NAN: values.count("NaN") if held_as_decimal else 0})


@pytest.mark.postgres
@pytest.mark.parametrize("type_", ["text", "varchar", "bpchar(40)", "bytea"])
@few_examples
@given(data=st.data(), chunk_bytes=chunk_sizes)
def test_texts_and_bytes(type_: str, data: st.DataObject, chunk_bytes: int, bench: Bench) -> None:
    bench.store(type_, data.draw(many(st.binary(max_size=50) if type_ == "bytea" else words)))
    bench.compare(chunk_bytes)


INFINITIES_8, INFINITIES_4 = (2**63 - 1, -(2**63)), (2**31 - 1, -(2**31))
FIRST_MICROSECOND, LAST_MICROSECOND = -211_813_488_000_000_000, 9_223_371_331_199_999_999
"""4714-11-24 BC and the end of 294276, counted from 2000."""
FROM_1970_TO_2000 = 946_684_800_000_000


@pytest.mark.postgres
@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
@few_examples
@given(data=st.data())
def test_timestamps_of_the_whole_range(type_: str, data: st.DataObject, bench: Bench) -> None:
    stamps = data.draw(
        many(
            st.integers(FIRST_MICROSECOND, LAST_MICROSECOND)
            | st.integers(-(2**51), 2**51)
            | st.sampled_from(INFINITIES_8)
        )
    )
    bench.store(type_, [None if stamp is None else struct.pack(">q", stamp) for stamp in stamps])
    finite = [stamp for stamp in stamps if stamp is not None and stamp not in INFINITIES_8]
    beyond = [stamp for stamp in finite if stamp + FROM_1970_TO_2000 >= 2**63 - 1]
    bench.compare(treated={Special.TIMESTAMP_RANGE: len(beyond)})


@pytest.mark.postgres
@few_examples
@given(
    days=many(st.integers(-2_451_545, 2_145_031_948) | st.integers(-800_000, 800_000) | st.sampled_from(INFINITIES_4))
)
def test_dates_of_the_whole_range(days: list[int | None], bench: Bench) -> None:
    bench.store("date", [None if day is None else struct.pack(">i", day) for day in days])
    bench.compare()


@pytest.mark.postgres
@few_examples
@given(times=many(st.integers(0, 86_400_000_000)))
def test_times_of_day(times: list[int | None], bench: Bench) -> None:
    bench.store("time", [None if time is None else struct.pack(">q", time) for time in times])
    bench.compare()


@pytest.mark.postgres
@few_examples
@given(
    intervals=many(
        st.tuples(integers(64), integers(32), integers(32))
        | st.tuples(st.integers(-(10**8), 10**8), st.integers(-40, 40), st.integers(-30, 30))
        | st.just((2**63 - 1, 2**31 - 1, 2**31 - 1))
        | st.just((-(2**63), -(2**31), -(2**31)))
    )
)
def test_intervals_of_the_whole_range(intervals: list[tuple[int, int, int] | None], bench: Bench) -> None:
    bench.store("interval", [None if parts is None else struct.pack(">qii", *parts) for parts in intervals])
    infinite = sum(parts in zip(INFINITIES_8, INFINITIES_4, INFINITIES_4, strict=True) for parts in intervals)
    bench.compare(treated={Special.INTERVAL_INFINITY: infinite})


@pytest.mark.postgres
@few_examples
@given(values=many(st.binary(min_size=16, max_size=16)))
def test_uuids(values: list[bytes | None], bench: Bench) -> None:
    bench.store("uuid", values)
    bench.compare()


@pytest.mark.postgres
@pytest.mark.parametrize("element", ELEMENTS)
@few_examples
@given(data=st.data(), dimensions=st.integers(1, 3), chunk_bytes=chunk_sizes)
def test_arrays_of_some_dimensions_with_nulls(
    element: str, data: st.DataObject, dimensions: int, chunk_bytes: int, bench: Bench
) -> None:
    bench.store(element + "[]" * dimensions, data.draw(many(arrays(ELEMENTS[element], dimensions), 30)))
    bench.compare(chunk_bytes)


@pytest.mark.postgres
@pytest.mark.parametrize("type_", BOUNDS)
@few_examples
@given(data=st.data(), multi=st.booleans())
def test_ranges_and_multiranges(type_: str, data: st.DataObject, multi: bool, bench: Bench) -> None:
    one = ranges(BOUNDS[type_])
    several = st.lists(one, max_size=4).map(lambda parts: "{" + ",".join(parts) + "}")
    bench.store(f"{type_}multirange" if multi else f"{type_}range", data.draw(many(several if multi else one, 60)))
    bench.compare()


@pytest.mark.postgres
@pytest.mark.parametrize("type_", ["item", "nest"])
@few_examples
@given(data=st.data(), chunk_bytes=chunk_sizes)
def test_composites(type_: str, data: st.DataObject, chunk_bytes: int, bench: Bench) -> None:
    bench.store(type_, data.draw(many(items if type_ == "item" else nests, 40)))
    bench.compare(chunk_bytes)


@pytest.mark.postgres
@few_examples
@given(values=many(documents(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)), 60))
def test_json_is_kept_to_the_letter(values: list[str | None], bench: Bench) -> None:
    bench.store("json", values)
    bench.compare()
    held = bench.duckdb.execute("SELECT value FROM public.sample ORDER BY id").fetchall()
    assert [value for (value,) in held] == values


@pytest.mark.postgres
@few_examples
@given(values=many(documents(words), 60))
def test_jsonb(values: list[str | None], bench: Bench) -> None:
    bench.store("jsonb", values)
    bench.compare()


# ------------------------------------------------------------------------------------------------------- the stream

Row = list[bytes | None]


def messages(rows: list[Row]) -> list[bytes]:
    """COPY's binary format, cut as Postgres cuts it: the header comes with the first row, or with the trailer."""
    parts = [
        struct.pack(">h", len(row))
        + b"".join(struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field for field in row)
        for row in rows
    ]
    parts.append(struct.pack(">h", -1))
    parts[0] = SIGNATURE + bytes(8) + parts[0]
    return parts


def framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def walked(buffer: CopyBuffer, pieces: list[bytes], eager: bool) -> list[Row]:
    """The rows that come out when the stream arrives in these pieces; looked for after each, or when it must be."""
    found: list[Row] = []

    def drain() -> None:
        while True:
            rows = buffer.rows()
            if rows is not None:
                for index in range(len(rows)):
                    places = zip(rows.starts[:, index], rows.lengths[:, index], strict=True)
                    found.append([None if size < 0 else rows.buf[at : at + size].tobytes() for at, size in places])
            elif not skipped_message(buffer):
                return

    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            room = buffer.room()
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            rest = rest[taken:]
            buffer.received(taken)
            if eager or buffer.full:
                drain()
    drain()
    return found


def skipped_message(buffer: CopyBuffer) -> bool:
    """Pass over a message that is no row, as the reader of the socket does."""
    pending = buffer.pending
    if len(pending) < 5 or (pending[0] == ord("d") and not buffer.finished):
        return False
    size = 1 + int.from_bytes(pending[1:5], "big")
    if len(pending) < size:
        buffer.need(size)
        return False
    buffer.skip(size)
    return True


fields = st.none() | st.binary(max_size=12) | st.binary(min_size=100, max_size=300)
tables = st.integers(0, 4).flatmap(
    lambda width: st.tuples(st.just(width), st.lists(st.lists(fields, min_size=width, max_size=width), max_size=30))
)


@settings(deadline=None, max_examples=300)
@given(
    table=tables,
    is_framed=st.booleans(),
    notices=st.sets(st.integers(0, 30)),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    capacity=st.sampled_from([1, 2, 3, 7, 16, 64, 300, 4096, 65_536]),
    eager=st.booleans(),
)
def test_rows_are_the_same_however_the_stream_is_cut(
    table: tuple[int, list[Row]], is_framed: bool, notices: set[int], cuts: list[int], capacity: int, eager: bool
) -> None:
    width, rows = table
    parts = messages(rows)
    if is_framed:
        # Among the rows the server may say other things: a notice, a setting that changed.
        parts = [framed(b"N", b"x" * 40) * (index in notices) + framed(b"d", part) for index, part in enumerate(parts)]
        parts.append(framed(b"c", b"") + framed(b"C", b"COPY 1\0"))
    stream = b"".join(parts)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(edges)]

    buffer = CopyBuffer(width, framed=is_framed, capacity=capacity)
    assert walked(buffer, pieces, eager) == rows
    assert buffer.finished
    assert len(buffer.pending) == 0
