"""ClickHouse's HTTP interface in front of chdb, which is ClickHouse's own engine as a library: a server for tests.

Run by an interpreter that has chdb, and nothing of ours: `python clickhouse_front.py DIRECTORY [--port N] [--user U
--password P]`. It prints `ready PORT` when it listens, on 127.0.0.1 only. What is in DIRECTORY stays there, so that
another one can go on with it. Spoken is what `clickhouse-connect` needs: queries in any format, inserts by body,
`input()`, parameters, settings, sessions, compressed bodies, errors with their code, requests side by side.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import gzip
import json
import os
import re
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

NOT_SETTINGS = {
    "query", "database", "user", "password", "session_id", "session_timeout", "session_check", "query_id", "quota_key",
    "default_format", "wait_end_of_query", "compress", "decompress", "enable_http_compression", "buffer_size", "role",
    "send_progress_in_http_headers", "http_headers_progress_interval_ms", "client_protocol_version",
}  # fmt: skip
_INSERT = re.compile(rb"\s*INSERT\s+INTO\b", re.IGNORECASE)
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_INLINE = re.compile(rb"\s+FORMAT\s+(\w+)\s*(\r?\n|\s)", re.IGNORECASE)
_INPUT = re.compile(r"\binput\s*\(", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")
_WRONG_PASSWORD, _UNKNOWN_DATABASE = 516, 81
_STATUS = {
    60: HTTPStatus.NOT_FOUND, 81: HTTPStatus.NOT_FOUND, 497: HTTPStatus.FORBIDDEN, 516: HTTPStatus.FORBIDDEN,
    62: HTTPStatus.BAD_REQUEST, 47: HTTPStatus.BAD_REQUEST, 6: HTTPStatus.BAD_REQUEST,
}  # fmt: skip


class QueryFailed(Exception):  # noqa: N818 (it is an answer)
    """What ClickHouse says is wrong, as it says it."""

    @property
    def code(self) -> int:
        found = _CODE.search(str(self))
        return int(found[1]) if found else 1002


class Engine:
    """One directory. Every request has a connection of its own, and so settings of its own; a session keeps it."""

    def __init__(self, directory: Path) -> None:
        import chdb  # type: ignore[import-not-found]  # of another environment

        self._connect = chdb.connect
        self._path = str(directory / "data")
        self._bodies = directory / "bodies"
        self._bodies.mkdir(parents=True, exist_ok=True)
        self._first = self._connect(self._path)  # the engine stays as long as one connection does
        self._sessions: dict[str, tuple[Any, threading.Lock]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def connection(self, session: str | None) -> Iterator[Any]:
        if session is None:
            made = self._connect(self._path)
            try:
                yield made
            finally:
                made.close()
            return
        with self._lock:
            if session not in self._sessions:
                self._sessions[session] = (self._connect(self._path), threading.Lock())
        made, alone = self._sessions[session]
        with alone:
            yield made

    def run(self, connection: Any, statement: bytes, params: dict[str, str], body: bytes | None) -> tuple[bytes, str]:
        """The answer, and the format that it has."""
        wanted = params.get("default_format", "TabSeparated")
        try:
            if params.get("database"):
                connection.query(f"USE {quoted(params['database'])}")
            for name, value in params.items():
                if name not in NOT_SETTINGS and not name.startswith("param_"):
                    connection.query(f"SET {quoted(name)} = {literal(value)}")
            if _INSERT.match(statement) and (found := inserted(statement, body)) is not None:
                self._insert(connection, *found)
                return b"", wanted
            text = statement.decode()
            named = _FORMAT.search(text)
            if named is not None:
                text, wanted = text[: named.start()], named[1]
            bound = {name[6:]: value for name, value in params.items() if name.startswith("param_")}
            return connection.query(text, wanted, params=bound or None).bytes(), wanted
        except QueryFailed:
            raise
        except Exception as error:
            raise QueryFailed(str(error)) from error

    def _insert(self, connection: Any, statement: str, kind: str, body: bytes) -> None:
        if not _INPUT.search(statement):
            with connection.send_insert(statement, kind) as stream:
                if body:
                    stream.append(body)
                stream.finish()
            return
        with tempfile.NamedTemporaryFile(dir=self._bodies) as file:
            file.write(body)
            file.flush()
            # The engine has no `input()`; a file is read by the same code.
            given = f"file({literal(file.name)}, {literal(kind)}, "
            connection.query(_INPUT.sub(lambda _: given, statement, count=1))


def inserted(statement: bytes, body: bytes | None) -> tuple[str, str, bytes] | None:
    """The statement, the format and the rows of an INSERT that brings some; None for one that brings none itself."""
    if body is not None:
        text = statement.decode()
        found = _FORMAT.search(text)
        return None if found is None else (text[: found.start()], found[1], body)
    inline = _INLINE.search(statement)
    if inline is None or inline[1].upper() == b"VALUES":
        return None
    return statement[: inline.start()].decode(), inline[1].decode(), statement[inline.end() :]


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unpacked(body: bytes, encoding: str) -> bytes:
    """A body as it was before it was compressed."""
    if encoding in ("", "identity"):
        return body
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "deflate":
        return zlib.decompress(body)
    import pyarrow as pa  # comes with chdb

    return bytes(pa.CompressedInputStream(pa.BufferReader(body), encoding).read())


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer's head and body in one packet: else the client's delayed acknowledgement is waited for
    engine: Engine
    user: str = "default"
    password: str = ""

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._answer(HTTPStatus.OK, b"Ok.\n", {})
        else:
            self._serve(b"")

    def do_POST(self) -> None:
        self._serve(unpacked(self._body(), self.headers.get("Content-Encoding", "")))

    def _serve(self, body: bytes) -> None:
        params = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        try:
            self._admit(params)
            query = params.get("query", "").encode()
            is_rows = bool(_INSERT.match(query))
            statement = query if is_rows else b"\n".join(part for part in (query, body) if part)
            with self.engine.connection(params.get("session_id")) as connection:
                found, kind = self.engine.run(connection, statement, params, body if is_rows and body else None)
        except QueryFailed as error:
            status = _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            self._answer(status, f"{error}\n".encode(), {"X-ClickHouse-Exception-Code": str(error.code)})
            return
        self._answer(HTTPStatus.OK, found, {"X-ClickHouse-Format": kind} if found else {})

    def _admit(self, params: dict[str, str]) -> None:
        user, password = params.get("user"), params.get("password", "")
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            try:
                user, _, password = base64.b64decode(given).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                user = None
        if (user or "default", password) != (self.user, self.password):
            raise QueryFailed(
                f"Code: {_WRONG_PASSWORD}. DB::Exception: {user}: Authentication failed: password is incorrect, or"
                " there is no user with such name. (AUTHENTICATION_FAILED)"
            )

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        said = {
            "Content-Length": str(len(body)), "X-ClickHouse-Query-Id": uuid4().hex, "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Summary": json.dumps({"read_rows": "0", "written_rows": "0"}),
        }  # fmt: skip
        for name, value in {**said, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Statements may hold values."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of the server's business."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user", default="default")
    parser.add_argument("--password", default="")
    given = parser.parse_args()
    Handler.engine, Handler.user, Handler.password = Engine(given.directory), given.user, given.password
    server = Server(("127.0.0.1", given.port), Handler)
    sys.stdout.write(f"ready {server.server_address[1]}\n")
    sys.stdout.flush()
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    server.serve_forever()


def _end_with(parent: int) -> None:
    """End when whoever started this has ended, however it did."""
    while os.getppid() == parent:
        threading.Event().wait(1)
    os._exit(0)


if __name__ == "__main__":
    main()
