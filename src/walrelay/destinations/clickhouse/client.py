"""Talks to a ClickHouse server over HTTP: statements, questions, and rows as Arrow or as Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from walrelay.destinations.clickhouse.dialect import quoted
from walrelay.destinations.clickhouse.failures import telling
from walrelay.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

EXAMPLE = "clickhouse://user:password@host:8123/database"
PLAIN_PORT, SECURE_PORT = 8123, 8443
PIECE_BYTES = 1 << 20
"""Of a file, at a time."""
_HUGE = 1 << 40
Stream = Generator[bytes, None, None]
SETTINGS: Mapping[str, Any] = {
    # What a write has said is there must be there: no buffer in between, and no block taken for one that came before.
    "async_insert": 0,
    "insert_deduplicate": 0,
    # A server of several replicas answers with what is on all of them.
    "select_sequential_consistency": 1,
    # The description of a wide table is long.
    "max_query_size": 64 << 20,
    "max_ast_elements": 5_000_000,
    "max_expanded_ast_elements": 5_000_000,
    "max_parser_depth": 10_000,
    # A statement that alters waits until that is done, everywhere.
    "alter_sync": 2,
    "mutations_sync": 2,
    "session_timezone": "UTC",
}
"""Of every request."""
ONE_BLOCK: Mapping[str, Any] = {
    "max_threads": 1,
    "max_insert_threads": 1,
    "input_format_parallel_parsing": 0,
    "max_insert_block_size": _HUGE,
    "min_insert_block_size_rows": 0,
    "min_insert_block_size_bytes": _HUGE,
}
"""An INSERT with these makes one part of a table, which readers see as a whole or not at all."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, and who asks."""

    host: str
    port: int
    database: str
    user: str = "default"
    password: str = ""
    secure: bool = False

    @classmethod
    def parse(cls, url: str, *, secure: bool) -> Address:
        parts = urlsplit(url)
        database = unquote(parts.path.lstrip("/"))
        try:
            port = parts.port or (SECURE_PORT if secure else PLAIN_PORT)
        except ValueError as error:
            raise ConfigError("the port in the destination's URL is none", hint=f"Write {EXAMPLE}.") from error
        if not parts.hostname or not database or "/" in database:
            raise ConfigError("a ClickHouse destination needs a host and a database", hint=f"Write {EXAMPLE}.")
        user, password = unquote(parts.username or "default"), unquote(parts.password or "")
        return cls(parts.hostname, port, database, user, password, secure)

    def __str__(self) -> str:
        """For people; without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"clickhouse://{host}:{self.port}/{self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def is_near(self) -> bool:
        """Whether bytes to it cost nothing."""
        return self.host in {"localhost", "127.0.0.1", "::1"}


def client_module() -> Any:
    try:
        import clickhouse_connect
        import clickhouse_connect.driver.httputil
    except ImportError as error:
        raise MissingExtraError(
            "the ClickHouse destination needs a package", hint="pip install 'walrelay[clickhouse]'"
        ) from error
    return clickhouse_connect


class Server:
    """One database of a server. Calls may come from several threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: Client = self._connected(client_module())

    def _connected(self, module: Any) -> Any:
        address = self.address
        pool = module.driver.httputil.get_pool_manager(maxsize=16, num_pools=2)
        with telling(f"connecting to {address}"):
            # The database is named in each statement: whether it is there is asked later, with a better answer.
            return module.get_client(
                host=address.host,
                port=address.port,
                username=address.user,
                password=address.password,
                interface="https" if address.secure else "http",
                autogenerate_session_id=False,
                pool_mgr=pool,
                client_name="walrelay",
                query_retries=1,
                send_receive_timeout=3600,
                show_clickhouse_errors=False,
            )

    @property
    def version(self) -> str:
        return str(self._client.server_version)

    def close(self) -> None:
        self._client.close()

    def place(self, name: str) -> str:
        """A table of the database, in SQL."""
        return f"{quoted(self.address.database)}.{quoted(name)}"

    def command(self, statement: str, settings: Mapping[str, Any] | None = None, *, doing: str = "") -> None:
        with telling(doing or "writing"):
            self._client.command(statement, settings={**SETTINGS, **(settings or {})}, use_database=False)

    def arrow(self, question: str, settings: Mapping[str, Any] | None = None, *, doing: str = "") -> pa.Table:
        with telling(doing or "reading"):
            said = self._client.raw_query(
                question, fmt="ArrowStream", settings={**SETTINGS, **_AS_ARROW, **(settings or {})}, use_database=False
            )
        return pa.ipc.open_stream(pa.py_buffer(said)).read_all() if said else pa.table({})

    def rows(self, question: str, *, doing: str = "") -> list[tuple[Any, ...]]:
        """Plain values of a few rows."""
        table = self.arrow(question, doing=doing)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []

    def value(self, question: str, *, doing: str = "") -> Any:
        return self.rows(question, doing=doing)[0][0]

    def insert(
        self, into: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, settings: Mapping[str, Any], doing: str
    ) -> None:
        """`into` is what stands behind INSERT INTO: a table, and its columns or a SELECT FROM input()."""
        self._send(
            into, lambda: _ipc(batches, schema, compressed=not self.address.is_near), "ArrowStream", settings, doing
        )

    def insert_file(self, into: str, path: Path, settings: Mapping[str, Any], doing: str) -> None:
        """The same for a Parquet file, as it is."""
        self._send(into, lambda: _pieces(path), "Parquet", settings, doing)

    def _send(self, into: str, body: Callable[[], Stream], kind: str, settings: Mapping[str, Any], doing: str) -> None:
        with telling(doing):
            self._client.raw_insert(into, insert_block=body(), fmt=kind, settings={**SETTINGS, **settings})


_AS_ARROW = {"output_format_arrow_string_as_string": 0, "output_format_arrow_compression_method": "none"}
"""Text as bytes: a column of bytes is a String too."""


class _Sink:
    """A file that keeps what was written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, data: Any) -> int:
        self._waiting.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> bytes:
        found, self._waiting = b"".join(self._waiting), []
        return found


def _ipc(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, compressed: bool) -> Stream:
    """Batches as Arrow's stream, each as soon as it is there."""
    sink = _Sink()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def _pieces(path: Path) -> Stream:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
