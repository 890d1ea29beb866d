"""Servers that are put back, promoted, or follow another: what the tests about the wrong server share."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from walrelay.testing.postgres import EmbeddedPostgres

PATIENCE = 60.0


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.01)


def data_of(server: EmbeddedPostgres) -> Path:
    return server.log_path.parent / "data"


def save(server: EmbeddedPostgres, to: Path) -> Path:
    """A copy of the disk, taken while the server is stopped, which then goes on."""
    server.stop()
    copy_data(data_of(server), to)
    server.start()
    return to


def put_back(server: EmbeddedPostgres, saved: Path, *, promoted: bool = False) -> None:
    """Give the server its saved disk again; `promoted` ends a recovery there, which begins a new timeline."""
    server.stop()
    shutil.rmtree(data_of(server))
    copy_data(saved, data_of(server))
    if promoted:
        touch(data_of(server) / "recovery.signal")
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        recovering = "SELECT pg_is_in_recovery()"
        wait_for(lambda: connection.execute(recovering).fetchone() == (False,), "recovery has ended")


def copy_data(data: Path, to: Path) -> None:
    """With owners and modes, which the server insists on."""
    subprocess.run(["cp", "-a", data, to], check=True)


def touch(file: Path) -> None:
    """A file that the server may remove."""
    file.touch()
    owner = file.parent.stat()
    os.chown(file, owner.st_uid, owner.st_gid)


@contextmanager
def standby_of(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Another server that follows this one by streaming."""
    directory = Path(tempfile.mkdtemp(prefix="walrelay-standby-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        save(primary, directory / "data")
        touch(directory / "data" / "standby.signal")
        settings = {
            "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
            "shared_buffers": "32MB",
        }
        with EmbeddedPostgres(version=primary.version, directory=directory, settings=settings) as standby:
            yield standby
    finally:
        shutil.rmtree(directory, ignore_errors=True)
