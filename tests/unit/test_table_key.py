"""By which columns rows are told apart: one rule for copies, changes, collapse, verify and the quarantine."""

from __future__ import annotations

import pytest

from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, ReplicaIdentity, TableSchema


@pytest.mark.parametrize(
    ("identity", "identity_columns", "primary_key", "expected"),
    [
        ("default", ("id",), ("id",), ("id",)),
        ("default", (), (), ()),
        ("index", ("code",), ("id",), ("code",)),
        ("index", ("code",), (), ("code",)),
        ("full", ("id", "code"), ("id",), ("id",)),
        ("full", ("id", "code"), (), ()),
        ("nothing", (), ("id",), ("id",)),
        ("nothing", (), (), ()),
    ],
)
def test_rows_are_told_apart_by_what_the_stream_names_them_by(
    identity: ReplicaIdentity,
    identity_columns: tuple[str, ...],
    primary_key: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    columns = tuple(Column(name, PgType(23, "int4")) for name in ("id", "code"))
    schema = TableSchema(
        1, TableName("s", "t"), columns, primary_key, identity=identity, identity_columns=identity_columns
    )
    assert schema.key_columns == expected
