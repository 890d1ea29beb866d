"""Columns as JSON text say what json.dumps says of their plain values, row by row."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from walrelay.decode import json_text
from walrelay.decode.json_text import json_objects, json_values
from walrelay.decode.warm import warm_json

many = settings(max_examples=15, deadline=None)

INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
RANGE = pa.struct([("lower", pa.string()), ("upper", pa.string()), ("lower_inc", pa.bool_()), ("empty", pa.bool_())])


def plain(value: Any) -> Any:
    """The rule itself, a value at a time: what JSON has no type for is text."""
    match value:
        case bytes():
            return "\\x" + value.hex()
        case Decimal():
            return f"{value:f}"
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return value


def said(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def assert_same(array: pa.Array) -> None:
    """Whole, and in slices, whose offsets are not zero."""
    for part in (array, array[1:], array[1:-1], array[:0], array[3:]):
        texts = json_values(part)
        texts.validate(full=True)
        assert texts.type == pa.string()
        assert texts.null_count == 0
        assert texts.to_pylist() == [said(value) for value in part.to_pylist()]


def arrays(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pa.Array]:
    return st.lists(st.none() | values, max_size=12).map(lambda items: pa.array(items, kind))


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda units: Decimal(f"{units}e-{scale}"))


# U+0000 as well, which Postgres never sends: the escapes are those of JSON, not of what we expect to meet.
strings = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    '\0\x01\x1f\x7f\b\t\n\f\r"\\/ué漢😀\u2028', max_size=8
)
LEAVES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int2": (pa.int16(), integers(16)),
    "int4": (pa.int32(), integers(32)),
    "int8": (pa.int64(), integers(64)),
    "float4": (pa.float32(), st.floats(width=32)),
    "float8": (pa.float64(), st.floats()),
    "numeric(10,2)": (pa.decimal128(10, 2), decimals(10, 2)),
    "numeric(38)": (pa.decimal128(38, 0), decimals(38, 0)),
    "numeric(38,38)": (pa.decimal128(38, 38), decimals(38, 38)),
    "text": (pa.string(), strings),
    "bytea": (pa.binary(), st.binary(max_size=20)),
    "interval": (
        INTERVAL,
        st.fixed_dictionaries({"months": integers(32), "days": st.none() | integers(32), "microseconds": integers(64)}),
    ),
    "range": (
        RANGE,
        st.fixed_dictionaries(
            {"lower": st.none() | strings, "upper": strings, "lower_inc": st.booleans(), "empty": st.booleans()}
        ),
    ),
}


@pytest.mark.parametrize("name", LEAVES)
def test_values_lists_and_composites_of_every_type_are_what_json_dumps_writes(name: str) -> None:
    kind, values = LEAVES[name]

    @many
    @given(
        arrays(kind, values),
        arrays(pa.list_(kind), st.lists(st.none() | values, max_size=4)),
        arrays(pa.list_(pa.list_(kind)), st.lists(st.lists(values, max_size=3), max_size=3)),
    )
    def check(single: pa.Array, listed: pa.Array, twice: pa.Array) -> None:
        for array in (single, listed, twice):
            assert_same(array)
        shortest = min(len(single), len(listed), len(twice))
        columns = [array[:shortest] for array in (single, listed, twice)]
        mask = pa.array([row % 3 == 1 for row in range(shortest)], pa.bool_())
        names = ["plain", 'quo"te\\', "Ünï"]
        assert_same(pa.StructArray.from_arrays(columns, names))
        assert_same(pa.StructArray.from_arrays(columns, names, mask=mask))

    check()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=200, max_size=200))
@example([struct.unpack("Q", struct.pack("d", 2.0**power))[0] for power in range(-1074, 1024)])
@example([struct.unpack("Q", struct.pack("d", float(f"{m}e{p}")))[0] for p in range(-324, 309) for m in (1, 5, 9.5)])
def test_floats_of_any_bits_are_printed_as_python_does(bits: list[int]) -> None:
    floats = np.array(bits, np.uint64).view(np.float64)
    expected = [repr(value) if math.isfinite(value) else said(value) for value in floats.tolist()]
    assert json_values(pa.array(floats, from_pandas=False)).to_pylist() == expected


def test_floats_at_the_edges_of_notation() -> None:
    values = [0.0, -0.0, 1.0, 1e15, 1e16, 123456789012345678.0, 1e22, 1e23, 0.0001, 0.00001, 1e100, 5e-324, math.nan]
    assert json_values(pa.array(values, from_pandas=False)).to_pylist() == [
        "0.0", "-0.0", "1.0", "1000000000000000.0", "1e+16", "1.2345678901234568e+17", "1e+22", "1e+23", "0.0001",
        "1e-05", "1e+100", "5e-324", '"NaN"',
    ]  # fmt: skip
    assert json_values(pa.array([0.1, math.inf], pa.float32())).to_pylist() == ["0.10000000149011612", '"Infinity"']


def test_decimals_keep_their_scale_and_have_no_exponent() -> None:
    values = [Decimal("1.50"), Decimal("0.00"), Decimal("-0.01"), None]
    assert json_values(pa.array(values, pa.decimal128(10, 2))).to_pylist() == ['"1.50"', '"0.00"', '"-0.01"', "null"]
    assert json_values(pa.array([Decimal("1e-38")], pa.decimal128(38, 38))).to_pylist() == ['"0.' + "0" * 37 + '1"']


def test_every_character_that_json_escapes_is_escaped() -> None:
    all_low = "".join(map(chr, range(0x100)))
    assert_same(pa.array([all_low, *all_low, None, "\u2028\U0010ffff"]))


def test_a_struct_that_is_null_is_null_whatever_lies_under_it() -> None:
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3]), pa.array(["a", None, "c"])], ["id", "word"], mask=pa.array([False, False, True])
    )
    assert json_objects(rows).to_pylist() == ['{"id":1,"word":"a"}', '{"id":2,"word":null}', "null"]
    assert json_objects(rows[1:]).to_pylist() == ['{"id":2,"word":null}', "null"]


def test_what_lies_under_a_null_list_is_left_out() -> None:
    offsets, known = pa.array([0, 2, 4, 5], pa.int32()), pa.array([False, True, False])
    assert_same(pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3, 4, 5]), mask=known))


def test_structs_without_fields_and_columns_without_values() -> None:
    assert json_objects(pa.array([{}, None], pa.struct([]))).to_pylist() == ["{}", "null"]
    assert json_values(pa.nulls(2)).to_pylist() == ["null", "null"]
    assert json_values(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist() == ['"a"', "null", '"a"']
    for kind, _ in LEAVES.values():
        assert json_values(pa.array([], kind)).to_pylist() == []
        assert_same(pa.nulls(5, kind))


def test_a_type_that_the_text_target_never_has_is_refused() -> None:
    with pytest.raises(TypeError, match="date32"):
        json_values(pa.array([0], pa.int32()).view(pa.date32()))


def test_memory_of_any_origin_runs_the_kernels_that_set_up_has_compiled() -> None:
    """A kernel compiles again, for seconds, when an argument is read-only where it was not."""
    warm_json()
    kernels = [each for each in vars(json_text).values() if hasattr(each, "signatures")]
    before = [len(each.signatures) for each in kernels]
    numbers = np.array([1, 2, 3])
    for array in (
        pa.array(numbers),
        pa.array(numbers.astype(np.float32)),
        pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(numbers)]),
        pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(numbers.tobytes())]),
        pa.array(["a", '"', None]),
        pa.array([[True], None, []]),
        pa.array([[b"a"], None, []])[1:],
    ):
        json_objects(pa.StructArray.from_arrays([array], ["value"]))
    assert [len(each.signatures) for each in kernels] == before
