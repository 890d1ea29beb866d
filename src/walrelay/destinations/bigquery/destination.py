"""Tables in a dataset of BigQuery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.bigquery.client import Access, BigQueryClient, bigquery_module
from walrelay.destinations.bigquery.dialect import DIALECT
from walrelay.destinations.bigquery.storage import Bucket
from walrelay.destinations.bigquery.warehouse import BigQueryWarehouse
from walrelay.destinations.urls import options_in
from walrelay.destinations.warehouse.destination import WarehouseDestination
from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

OPTIONS = ("location", "credentials_file", "staging", "json", "endpoint")
_JSON = ("text", "json")


class BigQueryDestination(WarehouseDestination):
    """A dataset, which must be there. Tables of the schema `public` keep their name, those of others have the schema's
    before theirs (`sales_orders`). `credentials` is an object of Google's, `credentials_file` a service account's key;
    without either the environment's are taken. `staging`: `gs://bucket/prefix` through which files are loaded, instead
    of being sent one by one. `json`: `text`, exactly as Postgres prints it, or `json`, BigQuery's own type, which
    writes it anew. `endpoint`: another address than Google's, an emulator's."""

    name = "bigquery"
    array_nulls = False

    def __init__(
        self,
        project: str,
        dataset: str,
        *,
        location: str | None = None,
        credentials: Credentials | None = None,
        credentials_file: str | Path | None = None,
        staging: str | None = None,
        json: str = "text",
        endpoint: str | None = None,
    ) -> None:
        super().__init__()
        if json not in _JSON:
            raise ConfigError(f"json is neither text nor json: {json}", hint="Write json=json, or leave it out.")
        self.project = project
        self.dataset = dataset
        self.dialect = self._dialect = replace(DIALECT, documents=json == "json")
        file = None if credentials_file is None else Path(credentials_file)
        self._access = Access(project, location, credentials, file, endpoint)
        self._bucket = None if staging is None else Bucket(staging)

    @classmethod
    def from_url(cls, url: str) -> Self:
        parts = urlsplit(url)
        project, dataset = unquote(parts.netloc), unquote(parts.path).strip("/")
        if not project or not dataset or "/" in dataset:
            raise ConfigError(
                "a BigQuery destination needs a project and a dataset", hint="Write bigquery://project/dataset."
            )
        options: dict[str, Any] = options_in(url, *OPTIONS)
        return cls(project, dataset, **options)

    @property
    def place(self) -> str:
        return f"{self.project}.{self.dataset}"

    def _open(self, context: DestinationContext) -> BigQueryWarehouse:
        bigquery_module()
        client = BigQueryClient(self._access, context.stopping)
        return BigQueryWarehouse(client, self.project, self.dataset, self._dialect, self._bucket)
