"""A BigQuery as tests see it: local-bigquery on loopback, and rows read by Google's client."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from tests.emulator_kit import emulator_python
from walrelay.destinations.bigquery.destination import BigQueryDestination
from walrelay.destinations.warehouse.names import table_place
from walrelay.model.names import TableName

PROJECT = "walrelay-test"
PATIENCE = 60.0


@contextmanager
def bigquery_server(directory: Path) -> Iterator[str]:
    """The address of an emulator of its own."""
    python = emulator_python("bigquery")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output = (directory / "bigquery.log").open("wb")
    program = Path(__file__).with_name("bigquery_server.py")
    server = subprocess.Popen(
        [str(python), str(program), str(port), str(directory)], stdout=output, stderr=subprocess.STDOUT
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(server, f"{address}/bigquery/v2/projects/{PROJECT}/datasets", directory / "bigquery.log")
        yield address
    finally:
        server.terminate()
        server.wait()
        output.close()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the emulator did not start: {log.read_text()}") from None
            time.sleep(0.1)


class BigQueryPlace:
    """A dataset of its own."""

    name = "bigquery"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.dataset = f"d_{uuid4().hex[:12]}"
        options = ClientOptions(api_endpoint=endpoint)
        self.client = bigquery.Client(PROJECT, AnonymousCredentials(), client_options=options)
        self.client.create_dataset(self.dataset)

    def destination(self, **options: Any) -> BigQueryDestination:
        return BigQueryDestination(PROJECT, self.dataset, endpoint=self.endpoint, **options)

    @property
    def url(self) -> str:
        return f"bigquery://{PROJECT}/{self.dataset}?endpoint={self.endpoint}"

    def table(self, table: str) -> str:
        return f"`{PROJECT}`.`{self.dataset}`.`{table_place(TableName.parse(table))}`"

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What a reader finds; names that had to be written otherwise are read back, and decimals, of which answers
        have no zeros at the end, get as many digits as their column has."""
        fields = self.client.get_table(self.table(table).replace("`", "")).schema
        scales = {one.name: Decimal(1).scaleb(-one.scale) for one in fields if one.scale is not None}
        found = self.client.query_and_wait(f"SELECT * FROM {self.table(table)}")
        return [
            {
                unquote(name): value.quantize(scales[name]) if value is not None and name in scales else value
                for name, value in row.items()
            }
            for row in found
        ]

    def held(self, name: str) -> list[dict[str, Any]]:
        return self.rows(f"public.{name}")

    def names(self) -> set[str]:
        """Of all tables, ours too."""
        return {one.table_id for one in self.client.list_tables(self.dataset)}

    def close(self) -> None:
        self.client.close()
