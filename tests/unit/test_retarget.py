"""What was decoded for the change log and taken to another target is what that target would have decoded itself."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from walrelay.changes.spark_dialect import SPARK
from walrelay.decode import calendar_text, clock, datetime, identifiers
from walrelay.decode.base import ARROW, TEXT, Fields, Tally, Target
from walrelay.decode.datetime import DATE_MAX, DATE_MIN, DAY_MICROS, EPOCH_MICROS, INT32_MAX, INT64_MAX, TIMESTAMP_MIN
from walrelay.decode.registry import BUILTIN, EXTENSION, arrow_type, decoder_for, find_rule
from walrelay.decode.retarget import LEAVES, retarget, retarget_batch, retarget_struct
from walrelay.decode.table import arrow_schema
from walrelay.decode.warm import sample_types
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema, TypeField
from walrelay.model.special import Special, SpecialValues

TARGETS = (ARROW, DUCKDB, SPARK, TEXT, Target("bare"), Target("texts", uuid_as_text=True, dates_as_text=True))
INFINITIES = {
    "date": [struct.pack(">i", INT32_MAX), struct.pack(">i", -INT32_MAX - 1)],
    "timestamp": [struct.pack(">q", INT64_MAX), struct.pack(">q", -INT64_MAX - 1)],
    "interval": [
        struct.pack(">qii", INT64_MAX, INT32_MAX, INT32_MAX),
        struct.pack(">qii", -INT64_MAX - 1, -INT32_MAX - 1, -INT32_MAX - 1),
    ],
}
# An example is a whole table: there is nothing to gain from shrinking it.
few = settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
BytesOf = st.SearchStrategy[bytes]


# ------------------------------------------------------------------------------------------------- values as bytes


@dataclass(frozen=True)
class Kind:
    """A Postgres type and the bytes of its values."""

    type: PgType
    values: BytesOf


def sized(part: bytes | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


def leaf(name: str, values: BytesOf) -> Kind:
    return Kind(PgType(0, name), values)


def packed(form: str, *limits: tuple[int, int]) -> BytesOf:
    return st.tuples(*(st.integers(*each) for each in limits)).map(lambda numbers: struct.pack(form, *numbers))


def stamps(name: str) -> Kind:
    finite = packed(">q", (TIMESTAMP_MIN, INT64_MAX - EPOCH_MICROS - 1)) | packed(">q", (-(10**15), 10**15))
    return leaf(name, finite | st.sampled_from(INFINITIES["timestamp"]))


DATE = leaf("date", packed(">i", (DATE_MIN, DATE_MAX)) | st.sampled_from(INFINITIES["date"]))
STAMP, STAMPTZ = stamps("timestamp"), stamps("timestamptz")
INTERVAL = leaf(
    "interval",
    packed(">qii", (-INT64_MAX - 1, INT64_MAX), (-INT32_MAX - 1, INT32_MAX), (-INT32_MAX - 1, INT32_MAX))
    | st.sampled_from(INFINITIES["interval"]),
)
UUID, TIME = leaf("uuid", st.binary(min_size=16, max_size=16)), leaf("time", packed(">q", (0, DAY_MICROS)))
INT4, WORD = leaf("int4", packed(">i", (-INT32_MAX, INT32_MAX))), leaf("text", st.text("aé\0").map(str.encode))


def array_of(element: Kind, dimensions: int = 1) -> Kind:
    def laid_out(shape_and_values: tuple[list[int], list[bytes | None]]) -> bytes:
        shape, values = shape_and_values
        head = struct.pack(">iii", len(shape), 0, 0) + b"".join(struct.pack(">ii", length, 1) for length in shape)
        return head + b"".join(map(sized, values))

    def filled(shape: list[int]) -> st.SearchStrategy[tuple[list[int], list[bytes | None]]]:
        total = int(np.prod(shape)) if shape else 0
        elements = st.lists(st.none() | element.values, min_size=total, max_size=total)
        return elements.map(lambda values: (shape, values))

    shapes: st.SearchStrategy[list[int]] = st.just([]) | st.lists(
        st.integers(1, 3), min_size=dimensions, max_size=dimensions
    )
    type_ = PgType(0, f"_{element.type.name}", kind="array", element=element.type, dimensions=dimensions)
    return Kind(type_, shapes.flatmap(filled).map(laid_out))


def composite_of(**parts: Kind) -> Kind:
    fields = tuple(TypeField(name, kind.type) for name, kind in parts.items())
    values = st.tuples(*(st.none() | kind.values for kind in parts.values()))
    return Kind(
        PgType(0, "pair", kind="composite", schema="public", fields=fields),
        values.map(lambda of: struct.pack(">i", len(of)) + b"".join(b"\0\0\0\1" + sized(value) for value in of)),
    )


def range_of(bound: Kind) -> Kind:
    def laid_out(parts: tuple[bytes | None, bytes | None, int]) -> bytes:
        lower, upper, inclusive = parts
        flags = inclusive | (0x08 if lower is None else 0) | (0x10 if upper is None else 0)
        return bytes([flags]) + b"".join(sized(part) for part in (lower, upper) if part is not None)

    bounds = st.none() | bound.values
    values = st.tuples(bounds, bounds, st.sampled_from([0, 2, 4, 6])).map(laid_out) | st.just(b"\1")
    return Kind(PgType(0, "span", kind="range", element=bound.type), values)


def multirange_of(span: Kind) -> Kind:
    values = st.lists(span.values, max_size=3)
    return Kind(
        PgType(0, "spans", kind="multirange", element=span.type),
        values.map(lambda of: struct.pack(">i", len(of)) + b"".join(map(sized, of))),
    )


DATES = (DATE, STAMP, STAMPTZ, INTERVAL)
KINDS: dict[str, Kind] = {
    **{kind.type.name: kind for kind in (*DATES, UUID, TIME, INT4, WORD)},
    **{f"{kind.type.name}[]": array_of(kind) for kind in (*DATES, UUID, TIME, INT4, WORD)},
    "uuid[][]": array_of(UUID, 2),
    "timestamptz[][][]": array_of(STAMPTZ, 3),
    **{f"range of {kind.type.name}": range_of(kind) for kind in (*DATES, UUID, TIME, INT4)},
    "range of uuid[]": range_of(array_of(UUID)),
    **{f"multirange of {kind.type.name}": multirange_of(range_of(kind)) for kind in (*DATES, UUID, TIME, INT4)},
    "composite": composite_of(number=INT4, key=UUID, at=STAMPTZ, day=DATE, lasts=INTERVAL, clock=TIME, word=WORD),
    "composite without differences": composite_of(number=INT4, word=WORD),
    "composite[]": array_of(composite_of(key=UUID, span=range_of(STAMP), days=array_of(DATE))),
    "composite of composite": composite_of(inner=composite_of(key=UUID, lasts=INTERVAL), number=INT4),
    "composite range[]": array_of(range_of(composite_of(day=DATE, number=INT4))),
}


def decoded(values: Sequence[bytes | None], type_: PgType, tally: Tally) -> pa.Array:
    return decoder_for(type_, tally.target).decode(Fields.of(list(values)), tally)


# ------------------------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize("name", KINDS)
def test_every_type_is_as_the_target_decodes_it(name: str) -> None:
    kind = KINDS[name]

    @settings(few, max_examples=15)
    @given(
        st.lists(st.none() | kind.values, max_size=8),
        st.integers(0, 3),
        st.integers(0, 8),
        st.sampled_from(["null", "clamp"]),
    )
    def check(values: list[bytes | None], start: int, length: int, policy: SpecialValues) -> None:
        held = decoded(values, kind.type, Tally(ARROW))
        for part, given_part in ((values, held), (values[start:][:length], held.slice(start, length))):
            for target in TARGETS:
                expected, got = Tally(target, policy), Tally(target, policy)
                array = retarget(given_part, kind.type, got)
                array.validate()
                assert array.type == arrow_type(kind.type, target)
                assert array.equals(decoded(part, kind.type, expected))
                assert got.counts == expected.counts

    check()


def test_no_row_of_the_type_table_that_differs_by_target_is_missing() -> None:
    for type_ in sample_types():
        if type_.kind == "base":
            varies = any(arrow_type(type_, target) != arrow_type(type_, ARROW) for target in TARGETS)
            assert not varies or find_rule(type_) in LEAVES, type_.name
    assert all(rule in (*BUILTIN.values(), *EXTENSION.values()) for rule in LEAVES)


def test_a_type_with_the_name_of_a_known_one_is_left_alone() -> None:
    stranger = PgType(0, "uuid", schema="own")
    array = pa.array([b"\0\1", None])
    assert retarget(array, stranger, Tally(TEXT)) is array
    assert retarget(array, PgType(0, "nothing", kind="composite"), Tally(TEXT)) is array


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_copied_for_the_same_target(name: str) -> None:
    array = decoded([None, None], KINDS[name].type, Tally(ARROW))
    assert retarget(array, KINDS[name].type, Tally(ARROW)) is array


@pytest.mark.parametrize(
    "kind",
    [STAMPTZ, array_of(DATE), range_of(STAMP), composite_of(at=STAMP, lasts=INTERVAL)],
    ids=lambda k: k.type.name,
)
def test_nothing_is_copied_where_the_type_is_the_same_and_no_value_is_special(kind: Kind) -> None:
    array = decoded([None], kind.type, Tally(ARROW))
    assert retarget(array, kind.type, Tally(SPARK)) is array


def test_a_special_value_that_is_forbidden_is_refused() -> None:
    for name, specials in INFINITIES.items():
        array = decoded([specials[0]], PgType(0, name), Tally(ARROW))
        with pytest.raises(SpecialValueError):
            retarget(array, PgType(0, name), Tally(Target("bare"), "error"))


def test_a_range_goes_with_a_bound_that_policy_made_null() -> None:
    span = range_of(DATE).type
    values = [
        b"\x02" + sized(struct.pack(">i", 0)) + sized(INFINITIES["date"][0]),
        b"\x12" + sized(struct.pack(">i", 0)),
    ]
    tally = Tally(SPARK)
    array = retarget(decoded(values, span, Tally(ARROW)), span, tally)
    assert [row is None for row in array.to_pylist()] == [True, False]
    assert tally.counts == {Special.DATE_INFINITY: 1}


def test_a_timestamp_beyond_arrow_stays_as_it_was_treated() -> None:
    """TEXT itself could have printed it, but the log does not hold it any more."""
    value = struct.pack(">q", INT64_MAX - EPOCH_MICROS)
    tally = Tally(TEXT)
    assert retarget(decoded([value], STAMP.type, Tally(ARROW)), STAMP.type, tally).to_pylist() == [None]
    clamped = decoded([value], STAMP.type, Tally(ARROW, "clamp"))
    assert retarget(clamped, STAMP.type, tally).to_pylist() == ["294247-01-10 04:00:54.775806"]
    assert not tally.counts


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    days = pa.array([INT32_MAX, 0, INT32_MAX], pa.int32()).view(pa.date32())
    tally = Tally(SPARK)
    pairs = pa.StructArray.from_arrays([days], ["day"], mask=pa.array([True, False, True]))
    array = retarget(pairs, composite_of(day=DATE).type, tally)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), days, mask=pa.array([True, False, True]))
    assert retarget(lists, array_of(DATE).type, tally)[1].as_py() == [array[1].as_py()["day"]]
    uuids = decoded([bytes(16), b"\1" * 16], UUID.type, tally)
    keys = pa.ListArray.from_arrays(pa.array([0, 1, 2, 2], pa.int32()), uuids, mask=pa.array([True, False, True]))
    assert retarget(keys, array_of(UUID).type, tally).to_pylist() == [
        None,
        ["01010101-" + "0101-" * 3 + "01" * 6],
        None,
    ]
    lists = retarget(lists, array_of(DATE).type, Tally(TEXT))
    assert lists.to_pylist() == [None, ["1970-01-01"], None]
    assert not tally.counts


def test_decoders_are_not_compiled_again_for_bytes_that_were_laid_out() -> None:
    kernels: list[Any] = [
        identifiers.render_identifiers,
        clock.render_times,
        calendar_text.render_dates,
        calendar_text.render_stamps,
        datetime.read_dates,
        datetime.read_timestamps,
        datetime.read_intervals,
    ]
    samples = {"uuid": bytes(16), "time": bytes(8), **{name: values[0] for name, values in INFINITIES.items()}}
    laid: list[Callable[[], object]] = []
    for name, value in samples.items():
        type_ = PgType(0, name)
        array = decoded([value, None], type_, Tally(ARROW))
        frozen = pa.ipc.open_stream(_stream(array)).read_next_batch().column(0)
        for target in (SPARK, TEXT):
            decoded([value, None], type_, Tally(target))
            laid += [lambda a=a, t=type_, to=target: retarget(a, t, Tally(to)) for a in (array, frozen)]  # type: ignore[misc]
    before = [len(each.signatures) for each in kernels]
    for run in laid:
        run()
    assert [len(each.signatures) for each in kernels] == before


def _stream(array: pa.Array) -> bytes:
    out = io.BytesIO()
    batch = pa.record_batch([array], ["value"])
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


# -------------------------------------------------------------------------------------------------------- whole tables


SCHEMA = TableSchema(
    1, TableName("public", "sample"), tuple(Column(f"c{k}", kind.type) for k, kind in enumerate(KINDS.values()))
)


def sample_batch(rows: list[list[bytes | None]], tally: Tally) -> pa.RecordBatch:
    columns = [
        decoded(values, c.type, tally) for values, c in zip(zip(*rows, strict=True), SCHEMA.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA, tally.target))


def through_parquet(batch: pa.RecordBatch) -> pa.RecordBatch:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), out)
    (again,) = pq.ParquetFile(io.BytesIO(out.getvalue())).iter_batches()
    return again


@settings(few, max_examples=3)
@given(st.lists(st.tuples(*(st.none() | kind.values for kind in KINDS.values())), min_size=1, max_size=3))
def test_batches_and_structs_of_rows_also_through_parquet(rows: list[Any]) -> None:
    held = sample_batch(rows, Tally(ARROW))
    mask = pa.array([False, *[True] * (len(rows) - 1)])
    structs = pa.StructArray.from_arrays(held.columns, names=held.schema.names, mask=mask)
    changes = through_parquet(pa.record_batch([structs], ["row"]))
    for target in TARGETS:
        expected = sample_batch(rows, Tally(target))
        for given_batch in (held, through_parquet(held)):
            batch = retarget_batch(given_batch, SCHEMA, Tally(target))
            assert batch.schema == arrow_schema(SCHEMA, target)
            assert batch.equals(expected)
        wanted = pa.StructArray.from_arrays(expected.columns, names=expected.schema.names, mask=mask)
        for given_structs in (structs, changes.column(0)):
            array = retarget_struct(given_structs, SCHEMA, Tally(target))
            array.validate()
            assert array.equals(wanted)
            assert retarget_struct(given_structs[1:], SCHEMA, Tally(target)).equals(wanted[1:])


def test_columns_that_came_as_text_stay_text() -> None:
    schema = replace(SCHEMA, columns=(Column("at", STAMPTZ.type, as_text=True),))
    batch = pa.record_batch([pa.array(["yesterday"])], ["at"])
    assert retarget_batch(batch, schema, Tally(TEXT)).equals(batch)


def test_errors_name_table_and_column() -> None:
    schema = replace(SCHEMA, columns=(Column("day", DATE.type), Column("clock", TIME.type)))
    day = pa.array([INT32_MAX], pa.int32()).view(pa.date32())
    clock_ = pa.array([-1], pa.int64()).view(pa.time64("us"))
    batch = pa.record_batch([day, clock_], ["day", "clock"])
    with pytest.raises(SpecialValueError, match=r"column day of public\.sample") as special:
        retarget_batch(batch, schema, Tally(SPARK, "error"))
    assert special.value.context["column"] == "day"
    with pytest.raises(BadBytesError, match=r"column clock of public\.sample"):
        retarget_batch(batch, schema, Tally(SPARK))


def test_a_table_without_columns_keeps_its_rows() -> None:
    schema = replace(SCHEMA, columns=())
    rows = pa.array([{}, None], pa.struct([]))
    assert retarget_struct(rows, schema, Tally(TEXT)) is rows
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert retarget_batch(batch, schema, Tally(TEXT)).num_rows == batch.num_rows
