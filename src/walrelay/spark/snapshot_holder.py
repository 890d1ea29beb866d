"""A process that keeps an exported snapshot alive while Spark reads under it.

A DataFrame is planned in a short-lived worker and read later, perhaps twice. The snapshot must live so long, and must
not live for ever: it holds back vacuum on the source. So a process of its own holds it, and lets go when no task has
read for a while, or when the Spark application is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from walrelay.errors import SourceError, WalrelayError, from_text
from walrelay.model.names import TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot's name, and the application name by which its readers are known."""

    name: str
    application: str
    pid: int
    """The holder's."""

    def release(self) -> None:
        """When nobody is going to read: it would keep its lock on the table until it finds out."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


def hold_snapshot(source: PostgresSource, table: TableName, *, idle_seconds: int) -> HeldSnapshot:
    """Start a holder and return its snapshot. The connection string goes through a pipe: arguments are public."""
    application = f"walrelay read {uuid.uuid4().hex[:12]}"
    order = {
        "url": source.url, "schema": table.schema, "table": table.name, "application": application,
        "idle_seconds": idle_seconds, "spark_pid": _spark_pid(),
    }  # fmt: skip
    holder = subprocess.Popen(
        [sys.executable, "-m", "walrelay.spark.snapshot_holder"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    holder.stdin.write(json.dumps(order).encode())
    holder.stdin.close()
    answer = holder.stdout.readline().decode()
    holder.stdout.close()
    failure = from_text(answer)
    if failure is not None:
        raise failure
    if not answer.strip():
        raise SourceError(
            "the process that was to hold the snapshot died",
            hint="Read again; if it keeps happening look whether the machine runs out of memory.",
        )
    return HeldSnapshot(answer.strip(), application, holder.pid)


def _spark_pid() -> int:
    """The process whose end ends the application: the parent of the daemon that forked this worker."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    return os.getppid()


def main() -> None:
    """Hold, answer with the snapshot's name, and wait until nobody needs it."""
    order = json.loads(sys.stdin.read())
    source = PostgresSource(order["url"])
    try:
        table = TableName(order["schema"], order["table"])
        with exported_snapshot(source, application="walrelay snapshot", table=table) as snapshot:
            sys.stdout.write(snapshot.name + "\n")
            sys.stdout.flush()
            os.close(sys.stdout.fileno())
            with suppress(psycopg.Error):
                _wait_until_idle(source, order["application"], order["idle_seconds"], order["spark_pid"])
    except WalrelayError as error:
        with suppress(OSError, ValueError):
            sys.stdout.write(error.to_text() + "\n")
            sys.stdout.flush()
    # No clean-up of ours is left, and the interpreter's would stumble over the closed stdout.
    os._exit(0)


def _wait_until_idle(source: PostgresSource, application: str, idle_seconds: int, spark_pid: int) -> None:
    last_read = time.monotonic()
    with connect(source, application="walrelay snapshot watch") as watch:
        while time.monotonic() - last_read < idle_seconds and _alive(spark_pid):
            readers = watch.execute(
                "SELECT count(*) AS n FROM pg_catalog.pg_stat_activity WHERE application_name = %s",
                (application,),
            ).fetchone()
            if readers is not None and readers.n:
                last_read = time.monotonic()
            time.sleep(LOOK_SECONDS)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
