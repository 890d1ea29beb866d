"""A Snowflake as tests see it: fakesnow's server on loopback, and rows read by Snowflake's connector."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import snowflake.connector

from tests.emulator_kit import emulator_python
from walrelay.destinations.snowflake.destination import SnowflakeDestination
from walrelay.destinations.warehouse.names import table_place
from walrelay.model.names import TableName

PATIENCE = 60.0
_AS_TEXT = ("TIMESTAMP", "DATE")
"""Types whose NULL fakesnow's server sends as 1970-01-01, and of which Python knows fewer years."""


@contextmanager
def snowflake_server(directory: Path) -> Iterator[int]:
    """The port of an emulator of its own."""
    python = emulator_python("snowflake")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    output = (directory / "snowflake.log").open("wb")
    program = Path(__file__).with_name("snowflake_server.py")
    server = subprocess.Popen([str(python), str(program), str(port)], stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(server, port, directory / "snowflake.log")
        yield port
    finally:
        server.terminate()
        server.wait()
        output.close()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the emulator did not start: {log.read_text()}") from None
            time.sleep(0.1)


def connected(port: int, **more: Any) -> Any:
    return snowflake.connector.connect(
        user="tester",
        password="secret",
        account="fakesnow",
        host="127.0.0.1",
        port=port,
        protocol="http",
        paramstyle="qmark",
        **more,
    )


class SnowflakePlace:
    """A schema of its own."""

    name = "snowflake"

    def __init__(self, port: int) -> None:
        self.port = port
        self.schema = f"S_{uuid4().hex[:12].upper()}"
        self.connection = connected(port)
        for statement in ("CREATE DATABASE IF NOT EXISTS SHOP", f"CREATE SCHEMA SHOP.{self.schema}"):
            self.connection.cursor().execute(statement)
        self.connection.cursor().execute(f"USE SCHEMA SHOP.{self.schema}")

    def destination(self, **options: Any) -> SnowflakeDestination:
        connection = {"host": "127.0.0.1", "port": self.port, "protocol": "http"}
        return SnowflakeDestination(
            "fakesnow", "SHOP", self.schema, user="tester", password="secret", connection=connection, **options
        )

    @property
    def url(self) -> str:
        return f"snowflake://tester:secret@fakesnow/SHOP/{self.schema}?host=127.0.0.1&port={self.port}&protocol=http"

    def asked(self, statement: str) -> list[Any]:
        return list(self.connection.cursor().execute(statement).fetchall())

    def columns(self, table: str) -> dict[str, str]:
        asked = (
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = CURRENT_SCHEMA()"
            " AND table_name = ? ORDER BY ordinal_position"
        )
        name = table_place(TableName.parse(table))
        return dict(self.connection.cursor().execute(asked, (name,)).fetchall())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What a reader finds: dates and moments as text, arrays and objects as what their JSON says."""
        kinds = self.columns(table)
        listed = ", ".join(
            f"{_name(name)}::VARCHAR" if kind.startswith(_AS_TEXT) else _name(name) for name, kind in kinds.items()
        )
        found = self.asked(f"SELECT {listed} FROM {quoted(table)}")
        return [
            {name: _value(kind, value) for (name, kind), value in zip(kinds.items(), row, strict=True)} for row in found
        ]

    def held(self, name: str) -> list[dict[str, Any]]:
        return self.rows(f"public.{name}")

    def names(self) -> set[str]:
        """Of all tables, ours too."""
        asked = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.schema}'"
        return {name for (name,) in self.asked(asked)}

    def close(self) -> None:
        self.connection.close()


def _value(kind: str, value: Any) -> Any:
    return json.loads(value) if value is not None and kind in ("ARRAY", "OBJECT", "VARIANT") else value


def quoted(table: str) -> str:
    return _name(table_place(TableName.parse(table)))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
