"""Postgres types as the catalog describes them, resolved to the last part."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from walrelay.model.schema import PgType, TypeField
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement

_VECTOR_ARRAYS = ("int2vector", "oidvector")


def enum_labels(connection: Connection, types: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The labels of these enums, in their order; those that are gone are left out."""
    with talking("reading the labels of enums"):
        rows = connection.execute(
            "SELECT enumtypid::int8 AS oid, array_agg(enumlabel::text ORDER BY enumsortorder) AS labels"
            " FROM pg_catalog.pg_enum WHERE enumtypid = ANY (%s::oid[]) GROUP BY enumtypid",
            (list(types),),
        ).fetchall()
    return {row.oid: tuple(row.labels) for row in rows}


class TypeCatalog:
    """The types reachable from some oids. Built once for a set of tables; asks the source one question."""

    def __init__(self, connection: Connection, oids: Iterable[int]) -> None:
        with talking("reading the type catalog"):
            rows = connection.execute(statement("types"), {"oids": sorted(set(oids))}).fetchall()
            self._by_oid: dict[int, Any] = {row.oid: row for row in rows}
            self._money_scale = 2
            if any(row.name == "money" for row in rows):
                found = connection.execute("SELECT scale(0::money::numeric) AS scale").fetchone()
                self._money_scale = found.scale if found else 2

    def resolve(self, oid: int, modifier: int = -1, dimensions: int = 1, display: str = "") -> PgType:
        """The type behind `oid`: domains give way to their base, arrays carry the declared dimensions."""
        row = self._by_oid[oid]
        if row.typtype == "d":
            dims = max(dimensions, row.base_dimensions, 1)
            return self.resolve(row.base, row.base_modifier if modifier < 0 else modifier, dims, display)
        common: dict[str, Any] = {
            "oid": oid, "name": row.name, "schema": row.schema, "extension": row.extension,
            "modifier": modifier, "has_binary": row.has_binary, "scale": self._money_scale, "display": display,
        }  # fmt: skip
        if row.typtype == "e":
            return PgType(**{**common, "modifier": -1}, kind="enum")
        if row.typtype == "c":
            return self._composite(row, common)
        if row.typtype == "r":
            return self._around(self.resolve(row.bound), {**common, "kind": "range"})
        if row.typtype == "m":
            return self._around(self.resolve(row.range), {**common, "kind": "multirange"})
        if row.name in _VECTOR_ARRAYS and row.schema == "pg_catalog":
            return self._around(self.resolve(row.element), {**common, "kind": "vector_array"})
        if row.category == "A" and row.element and row.length == -1:
            element = self.resolve(row.element, modifier)
            return self._around(element, {**common, "kind": "array", "dimensions": max(dimensions, 1)})
        return PgType(**common)

    def _composite(self, row: Any, common: dict[str, Any]) -> PgType:
        parts = zip(row.names or (), row.types or (), row.modifiers or (), row.dimensions or (), strict=True)
        fields = tuple(TypeField(name, self.resolve(oid, mod, max(dims, 1))) for name, oid, mod, dims in parts)
        binary = common["has_binary"] and all(part.type.has_binary for part in fields)
        return PgType(**{**common, "has_binary": binary}, kind="composite", fields=fields)

    @staticmethod
    def _around(inner: PgType, values: dict[str, Any]) -> PgType:
        return PgType(**{**values, "has_binary": values["has_binary"] and inner.has_binary}, element=inner)
