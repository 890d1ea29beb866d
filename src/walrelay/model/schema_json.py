"""A table's shape as JSON and back, exactly: the log and the stores keep it for years."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableLeaf, TableSchema, TypeField


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    return asdict(schema)


def schema_from_json(body: dict[str, Any]) -> TableSchema:
    """The schema that `schema_to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    return TableSchema(
        **{
            **body,
            "name": TableName(**body["name"]),
            "columns": tuple(_column(column) for column in body["columns"]),
            "primary_key": tuple(body["primary_key"]),
            "leaves": tuple(TableLeaf(**{**leaf, "name": TableName(**leaf["name"])}) for leaf in body["leaves"]),
            "identity_columns": tuple(body["identity_columns"]),
        }
    )


def version_to_json(version: SchemaVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "from_lsn": str(version.from_lsn),
        "schema": schema_to_json(version.schema),
        **({"doubt": version.doubt} if version.doubt else {}),
    }


def version_from_json(body: dict[str, Any]) -> SchemaVersion:
    return SchemaVersion(
        schema_from_json(body["schema"]),
        int(body["version"]),
        Lsn.parse(body["from_lsn"]),
        str(body.get("doubt", "")),
    )


def _column(body: dict[str, Any]) -> Column:
    return Column(**{**body, "type": _type(body["type"])})


def _type(body: dict[str, Any]) -> PgType:
    element = body["element"]
    return PgType(
        **{
            **body,
            "element": None if element is None else _type(element),
            "fields": tuple(TypeField(part["name"], _type(part["type"])) for part in body["fields"]),
        }
    )
