"""Tables in a schema of Snowflake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.snowflake.client import Access, SnowflakeClient, snowflake_module
from walrelay.destinations.snowflake.dialect import DIALECT
from walrelay.destinations.snowflake.warehouse import SnowflakeWarehouse
from walrelay.destinations.urls import options_in
from walrelay.destinations.warehouse.destination import WarehouseDestination
from walrelay.errors import ConfigError

OPTIONS = ("role", "warehouse", "private_key_file", "private_key_password", "names", "json")
CONNECTOR = ("host", "port", "protocol")
"""Options that only the connector understands: another address than the account's own."""
_NAMES, _JSON = ("exact", "upper"), ("text", "variant")


class SnowflakeDestination(WarehouseDestination):
    """A schema, which must be there. Tables of the schema `public` keep their name, those of others have the schema's
    before theirs (`sales_orders`). `names`: `exact`, as Postgres has them, or `upper`, so that nobody has to quote
    them. `json`: `text`, exactly as Postgres prints it, or `variant`, which Snowflake writes anew. `connection`: what
    else Snowflake's connector is to be told."""

    name = "snowflake"
    array_nulls = True

    def __init__(
        self,
        account: str,
        database: str,
        schema: str,
        *,
        user: str,
        password: str | None = None,
        private_key_file: str | Path | None = None,
        private_key_password: str | None = None,
        role: str | None = None,
        warehouse: str | None = None,
        names: str = "exact",
        json: str = "text",
        connection: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if names not in _NAMES:
            raise ConfigError(f"names are neither exact nor upper: {names}", hint="Write names=upper, or leave it out.")
        if json not in _JSON:
            raise ConfigError(f"json is neither text nor variant: {json}", hint="Write json=variant, or leave it out.")
        if password is None and private_key_file is None and not connection:
            raise ConfigError(
                "a Snowflake destination needs a password or a key",
                hint="Write snowflake://user:password@account/…, or …?private_key_file=FILE.",
            )
        file = None if private_key_file is None else Path(private_key_file)
        self._access = Access(
            account,
            user,
            database,
            schema,
            password,
            file,
            private_key_password,
            role,
            warehouse,
            dict(connection or {}),
        )
        self.dialect = self._dialect = replace(DIALECT, documents=json == "variant", upper=names == "upper")

    @classmethod
    def from_url(cls, url: str) -> Self:
        parts = urlsplit(url)
        places = [unquote(one) for one in parts.path.strip("/").split("/")]
        if not parts.hostname or not parts.username or len(places) != 2 or not all(places):
            raise ConfigError(
                "a Snowflake destination needs an account, a user, a database and a schema",
                hint="Write snowflake://user:password@account/database/schema?warehouse=…&role=….",
            )
        options: dict[str, Any] = options_in(url, *OPTIONS, *CONNECTOR)
        connection: dict[str, Any] = {one: options.pop(one) for one in CONNECTOR if one in options}
        if "port" in connection:
            if not connection["port"].isdigit():
                raise ConfigError("the port is no number", hint="Write port=443, or leave it out.")
            connection["port"] = int(connection["port"])
        return cls(
            parts.netloc.rpartition("@")[2],
            *places,
            user=unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            connection=connection,
            **options,
        )

    @property
    def place(self) -> str:
        return f"{self._access.account}/{self._access.database}/{self._access.schema}"

    def _open(self, context: DestinationContext) -> SnowflakeWarehouse:
        snowflake_module()
        pipeline = context.pipeline_name or context.pipeline_id
        return SnowflakeWarehouse(SnowflakeClient(self._access), self.place, self._dialect, pipeline)
