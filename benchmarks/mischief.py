"""Everything that may happen to a pipeline in its life, at random: `python -m benchmarks mischief`.

Processes are killed or stopped for a while, connections cut or stalled, rights taken and given back, the slot dropped,
the server restarted, the disk filled. Nobody helps but by the documented remedies: the command is started again when it
has ended, as a service manager would, with `--begin-anew`. In the end the pipeline is healthy, and `verify` is clean.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import psycopg
from rich.console import Console

from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.proxy import FaultProxy
from walrelay.testing.workload import Workload

PUBLICATION = "shop"
ROLE = "relay"
PATIENCE = 600.0
"""Seconds in which the pipeline must be healthy once the mischief has ended."""
_COMMAND = (sys.executable, "-c", "from walrelay.cli.app import main; main()")


class Mischief:
    """A server, a workload, a `walrelay replicate` that is started again whenever it ends, and somebody who is bad."""

    def __init__(self, server: EmbeddedPostgres, directory: Path, seed: int, console: Console) -> None:
        self._server = server
        self._url = server.create_database("mischief")
        self._directory = directory
        self._chance = Random(seed)
        self._console = console
        self._child: subprocess.Popen[bytes] | None = None
        self._workload = Workload(self._url, seed, clients=2, publication=PUBLICATION)
        self.deeds: Counter[str] = Counter()
        self.starts = 0

    def run(self, minutes: float) -> bool:
        """Whether all was well in the end."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            self._workload.create(connection)
            connection.execute(f"CREATE ROLE {ROLE} LOGIN REPLICATION IN ROLE pg_read_all_data")
        with FaultProxy("127.0.0.1", self._server.port) as proxy:
            with self._workload.running():
                self._be_bad(proxy, time.monotonic() + 60 * minutes)
            ok = self._is_well_in_the_end(proxy)
        self._end()
        return ok

    def _be_bad(self, proxy: FaultProxy, until: float) -> None:
        kinds: tuple[Callable[[FaultProxy], None], ...] = (
            self._kill, self._kill, self._hold, self._cut, self._stall, self._refuse, self._revoke, self._terminate,
            self._drop_slot, self._restart_server, self._end_politely, self._fill_disk,
        )  # fmt: skip
        while time.monotonic() < until:
            self._keep_running(proxy)
            time.sleep(self._chance.uniform(2, 12))
            self._keep_running(proxy)
            deed = self._chance.choice(kinds)
            self.deeds[deed.__name__.strip("_")] += 1
            deed(proxy)

    # ------------------------------------------------------------------------------------------------------ the command

    @property
    def _source(self) -> list[str]:
        return ["--publication", PUBLICATION, "--state", str(self._directory / "state")]

    @property
    def _destination(self) -> str:
        return f"duckdb:///{self._directory / 'out.duckdb'}"

    def _replicated(self, proxy: FaultProxy) -> str:
        return proxy.url(self._url).replace("postgres@", f"{ROLE}@")

    def _keep_running(self, proxy: FaultProxy) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        self.starts += 1
        for aside in (self._directory / "state").glob("log.set-aside-*"):
            shutil.rmtree(aside, ignore_errors=True)  # as docs/how-to/recover.md says
        said = (self._directory / "said.log").open("ab")
        self._child = subprocess.Popen(
            [*_COMMAND, "replicate", self._replicated(proxy), self._destination, *self._source, "--begin-anew"],
            stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip

    def _processes(self) -> list[psutil.Process]:
        if self._child is None:
            return []
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._child.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def _end(self) -> None:
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    # -------------------------------------------------------------------------------------------------------- the deeds

    def _kill(self, _: FaultProxy) -> None:
        if found := self._processes():
            with suppress(psutil.NoSuchProcess):
                self._chance.choice(found).kill()

    def _hold(self, _: FaultProxy) -> None:
        found = self._processes()
        if not found:
            return
        one = self._chance.choice(found)
        with suppress(psutil.NoSuchProcess):
            one.suspend()
            time.sleep(self._chance.uniform(1, 15))
            one.resume()

    def _cut(self, proxy: FaultProxy) -> None:
        proxy.drop()

    def _stall(self, proxy: FaultProxy) -> None:
        proxy.pause()
        time.sleep(self._chance.uniform(1, 20))
        proxy.resume()

    def _refuse(self, proxy: FaultProxy) -> None:
        proxy.refuse(True)
        proxy.drop()
        time.sleep(self._chance.uniform(1, 15))
        proxy.refuse(False)

    def _revoke(self, _: FaultProxy) -> None:
        self._sql(f"REVOKE pg_read_all_data FROM {ROLE}")
        time.sleep(self._chance.uniform(1, 15))
        self._sql(f"GRANT pg_read_all_data TO {ROLE}")

    def _terminate(self, _: FaultProxy) -> None:
        self._sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}' AND random() < 0.5")

    def _drop_slot(self, _: FaultProxy) -> None:
        self._sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")
        with suppress(psycopg.Error):
            self._sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")

    def _restart_server(self, _: FaultProxy) -> None:
        self._server.stop("immediate" if self._chance.random() < 0.5 else "fast")
        time.sleep(self._chance.uniform(0, 5))
        self._server.start()

    def _end_politely(self, _: FaultProxy) -> None:
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGTERM)

    def _fill_disk(self, _: FaultProxy) -> None:
        """Only where state and destination lie on a small disk of their own: see `small_disk`."""
        if not os.path.ismount(self._directory):
            return
        ballast = self._directory / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"\0" * (1 << 20))
        time.sleep(self._chance.uniform(2, 10))
        ballast.unlink(missing_ok=True)

    def _sql(self, statement: str) -> None:
        for _ in range(50):
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    connection.execute(statement)  # type: ignore[call-overload]
                return
            except psycopg.OperationalError:
                time.sleep(0.2)  # the server is away

    # ---------------------------------------------------------------------------------------------------------- the end

    def _is_well_in_the_end(self, proxy: FaultProxy) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._keep_running(proxy)
            status = self._ask("status", "--state", str(self._directory / "state"), "--json")
            if status is not None and self._is_healthy(status):
                break
            time.sleep(2)
        else:
            self._console.print(f"not healthy within {PATIENCE:.0f} s: {status}")
            return False
        verify = [*_COMMAND, "verify", self._url, self._destination, *self._source]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        self._console.print(done.stdout + done.stderr, markup=False)
        return done.returncode == 0

    def _ask(self, *command: str) -> Any:
        done = subprocess.run([*_COMMAND, *command], capture_output=True, text=True, check=False)
        with suppress(ValueError):
            return json.loads(done.stdout)
        return None

    @staticmethod
    def _is_healthy(status: Any) -> bool:
        phases = {table["phase"] for table in status["tables"]}
        return bool(status["running"] and status["healthy"] and phases == {"ready"} and status["lag_seconds"] == 0)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A directory on a disk of its own that can be filled, where we may mount one; else an ordinary one."""
    with tempfile.TemporaryDirectory(prefix="walrelay-mischief-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", name]
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            yield Path(name)
        finally:
            if is_mounted:
                subprocess.run(["umount", "-l", name], capture_output=True, check=False)


def run_mischief(minutes: float, seed: int, console: Console) -> bool:
    with EmbeddedPostgres() as server, small_disk(2000) as directory:
        mischief = Mischief(server, directory, seed, console)
        ok = mischief.run(minutes)
        console.print(f"{minutes:.0f} minutes, seed {seed}, {mischief.starts} starts; {dict(mischief.deeds)}")
        said = (directory / "said.log").read_text(errors="replace")
        is_orderly = "Traceback" not in said
        console.print("healthy and equal in the end" if ok else "NOT well in the end")
        if not is_orderly:
            console.print("a traceback was printed on the way:")
            console.print(said[said.index("Traceback") - 400 :][:3000], markup=False)
        elif not ok:
            console.print(said[-8000:], markup=False)
        return ok and is_orderly
