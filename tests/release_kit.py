"""A server that stands where an earlier one stood when a release wrote its state, log and destination.

What a release wrote must be read as it wrote it, and walrelay knows a server by its identity, its slot, and by what is
in its WAL at the log's end. So these are kept too, as files, and they are small. The tables are not: a new server runs
the same statements from the same transaction and object number on, and then gets the WAL of the other one.
"""

from __future__ import annotations

import json
import os
import shutil
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
"""The WAL begins at 1/0, so that what is kept of it is short, whatever was written before."""
_KEPT = ("global/pg_control", "pg_wal", "pg_replslot", "pg_logical/snapshots")
"""What of a server's files is its own."""


@dataclass(frozen=True)
class Release:
    """What a release has left: `statements` were run in three parts, of which its pipeline has taken in two."""

    directory: Path
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
    return Release(directory, Lsn.parse(facts["head"]), statements())


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
        plant(data_of(server), kept.directory / "server.tar.xz")
        server.start()
        yield server


def keep(data: Path, to: Path) -> None:
    """What of a stopped server's files makes it the one that it is."""
    with tarfile.open(to, "w:xz") as archive:
        for name in _KEPT:
            archive.add(data / name, name, filter=of_nobody)


def plant(data: Path, kept: Path) -> None:
    """Make a stopped server the one that was kept."""
    owner = data.stat()
    for name in _KEPT[1:]:
        shutil.rmtree(data / name)
    with tarfile.open(kept) as archive:
        archive.extractall(data, filter="data")
        for name in archive.getnames():
            os.chown(data / name, owner.st_uid, owner.st_gid)


def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


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
