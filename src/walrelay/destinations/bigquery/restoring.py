"""Values of BigQuery's as DuckDB has them."""

from __future__ import annotations

from walrelay.destinations.bigquery.dialect import column_name
from walrelay.destinations.warehouse.restoring import Restoring, plain
from walrelay.model.schema import PgType


class BigQueryRestoring(Restoring):
    def field(self, name: str) -> str:
        return column_name(name)

    def item(self, element: str, is_list: bool) -> str:
        return f"({element}).items" if is_list else element

    def leaf(self, type_: PgType, value: str) -> str:
        return plain(type_, value)
