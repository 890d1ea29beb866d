"""Snowflake's connector: some sessions, each for one thread at a time, with an end to their patience."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from walrelay.destinations.snowflake.failures import snowflake_failures
from walrelay.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor

LOGIN_SECONDS = 60
NETWORK_SECONDS = 120
"""For an answer with all its repetitions; the connector itself would go on for ever."""
SESSION: Mapping[str, Any] = {
    "QUERY_TAG": "walrelay",
    "TIMEZONE": "UTC",
    "TIMESTAMP_INPUT_FORMAT": "AUTO",
    "TIMESTAMP_NTZ_OUTPUT_FORMAT": "YYYY-MM-DD HH24:MI:SS.FF6",
    "TIMESTAMP_TZ_OUTPUT_FORMAT": "YYYY-MM-DD HH24:MI:SS.FF6TZH:TZM",
    "DATE_OUTPUT_FORMAT": "YYYY-MM-DD",
    "BINARY_INPUT_FORMAT": "HEX",
    # What a dead run holds is let go of, and waited for no longer than a batch may take.
    "ABORT_DETACHED_QUERY": True,
    "LOCK_TIMEOUT": 120,
    "TRANSACTION_ABORT_ON_ERROR": True,
}


def snowflake_module() -> Any:
    try:
        import snowflake.connector
    except ImportError as error:
        raise MissingExtraError(
            "the package snowflake-connector-python is not installed", hint="pip install 'walrelay[snowflake]'"
        ) from error
    # It writes statements, values of parameters and every lost answer into its log; what matters we are told.
    logging.getLogger("snowflake.connector").setLevel(logging.CRITICAL)
    return snowflake.connector


@dataclass(frozen=True)
class Access:
    """How to reach Snowflake."""

    account: str
    user: str
    database: str
    schema: str
    password: str | None = field(default=None, repr=False)
    private_key_file: Path | None = None
    private_key_password: str | None = field(default=None, repr=False)
    role: str | None = None
    warehouse: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else the connector is to be told: `host`, `port`, `protocol` …"""

    def arguments(self) -> dict[str, Any]:
        said = {
            "account": self.account,
            "user": self.user,
            "database": self.database,
            "schema": self.schema,
            "password": self.password,
            "role": self.role,
            "warehouse": self.warehouse,
            **self._key(),
            **self.more,
        }
        return {name: value for name, value in said.items() if value is not None}

    def _key(self) -> dict[str, Any]:
        if self.private_key_file is None:
            return {}
        if not self.private_key_file.is_file():
            raise ConfigError(f"there is no key {self.private_key_file}", hint="Give the file of the private key.")
        key: dict[str, Any] = {"authenticator": "SNOWFLAKE_JWT", "private_key_file": str(self.private_key_file)}
        if self.private_key_password is not None:
            key["private_key_file_pwd"] = self.private_key_password
        return key


class SnowflakeClient:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._free: SimpleQueue[SnowflakeConnection] = SimpleQueue()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """For this thread. One in which something failed is not used again: nobody knows what it holds."""
        try:
            connection = self._free.get_nowait()
        except Empty:
            connection = self._connected()
        try:
            yield Session(connection)
        except BaseException:
            with suppress(Exception):
                connection.close(retry=False)
            raise
        self._free.put(connection)

    def _connected(self) -> SnowflakeConnection:
        module = snowflake_module()
        with snowflake_failures("logging in"):
            made: SnowflakeConnection = module.connect(
                **self._access.arguments(),
                application="walrelay",
                autocommit=True,
                session_parameters=dict(SESSION),
                login_timeout=LOGIN_SECONDS,
                network_timeout=NETWORK_SECONDS,
                client_session_keep_alive=False,
                paramstyle="qmark",
            )
        return made

    def close(self) -> None:
        while True:
            try:
                connection = self._free.get_nowait()
            except Empty:
                return
            with suppress(Exception):
                connection.close()


class Session:
    """Statements of one thread."""

    def __init__(self, connection: SnowflakeConnection) -> None:
        self._connection = connection

    def run(self, sql: str, doing: str, *values: Any) -> int:
        """How many rows it changed."""
        with snowflake_failures(doing):
            cursor = self._executed(sql, values)
            return int(cursor.rowcount or 0)

    def rows(self, sql: str, doing: str, *values: Any) -> list[Any]:
        with snowflake_failures(doing):
            return list(self._executed(sql, values).fetchall())

    def arrow(self, sql: str, doing: str) -> Iterator[Any]:
        with snowflake_failures(doing):
            yield from self._executed(sql, ()).fetch_arrow_batches()

    def _executed(self, sql: str, values: tuple[Any, ...]) -> SnowflakeCursor:
        cursor = self._connection.cursor()
        cursor.execute(sql, values or None)
        return cursor

    @contextmanager
    def transaction(self, doing: str) -> Iterator[None]:
        """Rolled back when something in it fails."""
        self.run("BEGIN", doing)
        try:
            yield
        except BaseException:
            with suppress(Exception):  # a session that is gone takes it along
                self.run("ROLLBACK", doing)
            raise
        self.run("COMMIT", doing)
