"""A server that stands where an earlier one stood when a release wrote its state, log and destination.

A slot cannot be kept in a file, but what a release wrote must be read as it wrote it. So it is the server that is made
to fit: a new one runs the same statements from the same transaction and object number on, is given the earlier one's
identity, and its WAL begins where the other's began. A slot made there has not yet reached the end of the kept log.
"""

from __future__ import annotations

import json
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.server_kit import data_of
from walrelay.model.lsn import Lsn
from walrelay.testing.postgres import EmbeddedPostgres

RELEASES = Path(__file__).parent / "fixtures" / "releases"
SLOT = "walrelay_shop"
OWNER = "relay"
_NUMBERS = ("-x", "10000", "-o", "30000")
"""Of the first transaction and the first object, whatever the server's own set-up has used."""
_WAL = ("-l", "000000010000000100000000")
"""The WAL begins at 1/0: what the script has written before was at a lower position."""


@dataclass(frozen=True)
class Release:
    """What a release has left: `statements` were run in three parts, of which its pipeline has taken in two."""

    directory: Path
    identifier: int
    head: Lsn
    """Where the log ends."""
    statements: tuple[str, ...]

    def unpack(self, to: Path) -> None:
        """State, log and destination, as they were written."""
        with tarfile.open(self.directory / "written.tar.xz") as written:
            written.extractall(to, filter="data")


def release(name: str) -> Release:
    directory = RELEASES / name
    facts = json.loads((directory / "facts.json").read_text())
    return Release(directory, facts["system_identifier"], Lsn.parse(facts["head"]), statements())


def statements() -> tuple[str, ...]:
    """Before the copy, until the pipeline ended, and after it."""
    return tuple((RELEASES / f"{part}.sql").read_text() for part in ("before", "while", "after"))


@contextmanager
def numbered_server() -> Iterator[EmbeddedPostgres]:
    """A new server whose next transaction and object have fixed numbers."""
    with EmbeddedPostgres(version=18, settings={"shared_buffers": "32MB"}) as server:
        reset(server, *_NUMBERS)
        yield server


@contextmanager
def server_of(kept: Release) -> Iterator[EmbeddedPostgres]:
    """The server as it was when the release's log ended."""
    with numbered_server() as server:
        for part in kept.statements:
            run(server, part)
        server.stop()
        identify(data_of(server), kept.identifier)
        reset(server, *_WAL)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
            while end_of(server) <= kept.head:
                connection.execute("SELECT pg_logical_emit_message(false, 'filling', repeat('x', 10000))")
        yield server


def begin_wal(server: EmbeddedPostgres) -> None:
    reset(server, *_WAL)


def reset(server: EmbeddedPostgres, *options: str) -> None:
    """Stop the server, and set what its next start goes on with."""
    server.stop()
    done = server._spawn("pg_resetwal", "--force", *options).wait()
    assert done == 0, server.log_path.read_text()[-2000:]
    server.start()


def run(server: EmbeddedPostgres, script: str) -> None:
    """Each statement in a transaction of its own."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.execute(statement)  # type: ignore[call-overload]


def owner_url(server: EmbeddedPostgres) -> str:
    """As the role under which the pipeline runs."""
    return server.url.replace("postgres@", f"{OWNER}@")


def end_of(server: EmbeddedPostgres) -> Lsn:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def identifier_of(server: EmbeddedPostgres) -> int:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
    assert row is not None
    return int(row[0])


def identify(data: Path, identifier: int) -> None:
    """Give a stopped server another identity: the first field of its control file, which ends with a checksum."""
    file = data / "global" / "pg_control"
    body = bytearray(file.read_bytes())
    at = _checksum_at(body)
    body[:8] = struct.pack("=Q", identifier)
    body[at : at + 4] = struct.pack("=I", _crc32c(body[:at]))
    with file.open("r+b") as opened:  # in place: owner and mode stay
        opened.write(body)


def _checksum_at(body: bytearray) -> int:
    """Where the checksum of all that is before it stands; which version of Postgres has it where need not be known."""
    return next(at for at in range(64, 1024, 4) if struct.unpack_from("=I", body, at)[0] == _crc32c(body[:at]))


def _crc32c(body: bytes | bytearray) -> int:
    crc = 0xFFFFFFFF
    for byte in body:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
