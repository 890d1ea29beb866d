"""A DuckDB file that several threads of ours, and processes of others, take turns with.

DuckDB lets one process in at a time, so the file is open only while something is done with it.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.turns import Turns
from walrelay.errors import (
    DestinationBusyError,
    DestinationCorruptError,
    DestinationError,
    DestinationNotWritableError,
    DiskFullError,
    MissingExtraError,
)
from walrelay.model.notice import Notice

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
FILE = "_walrelay_file"
"""What our own DuckDB calls the file while changes are written: no schema of a source has this name."""
WAL_BYTES = 16 * 1024
"""DuckDB's own log beyond which it is worked into the file. It is read again whenever the file is opened, by us or by
others, which takes longer than writing a checkpoint once it is longer than this."""
LONGEST_HOLD = 0.5
"""Seconds for which threads of ours may pass the file on to each other before others get a chance."""
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two attempts to open a file that others have."""
VISIT_PAUSE = 0.004
"""The same for somebody who comes between the batches of a busy run: it is free for a moment only."""
LONGEST_SERVICE = 1000
"""How often one DuckDB attaches the file before another takes its place: it keeps a little of every file and block that
it has seen, some MB a minute under a constant load, for as long as it lives. A new one takes 25 ms."""
WATCH_SECONDS = 0.2
"""How long a statement may go on after the pipeline was told to stop."""


class DuckDBFile:
    """Opened for each use. `context` says how patiently; it comes with the destination's startup."""

    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self.path = path
        self.context: DestinationContext | None = None
        # The order of rows in a table means nothing, and keeping it costs time and memory.
        self._settings = {"preserve_insertion_order": "false", **settings}
        self._lock = Turns()
        self._loading = Turns()
        self._guests = 0
        """Who is beside those that take turns."""
        self._held_since = 0.0
        """Since when the file is attached; 0 when it is not."""
        self._session: DuckDBPyConnection | None = None
        """A DuckDB without a file. The file is attached for each batch: that takes a millisecond, opening it twenty."""
        self._served = 0
        """How often it was attached there."""

    def close(self) -> None:
        """Leave everything in the file itself, for whoever copies it away."""
        with self._loading, self._lock:
            if self._session is not None:
                self._held_since = 0.0
                with suppress(duckdb_module().Error):
                    self._settle(self._session)
                self._session.close()
                self._session = None

    def _tidy(self, session: DuckDBPyConnection, beyond: int = WAL_BYTES) -> None:
        """Keep DuckDB's own log short."""
        try:
            size = self.path.with_name(f"{self.path.name}.wal").stat().st_size
        except FileNotFoundError:
            return
        if size > beyond:
            session.execute(f"CHECKPOINT {FILE}")

    def _settle(self, session: DuckDBPyConnection) -> None:
        """Leave everything in the file itself, for whoever copies it away; unless somebody has it open."""
        if self._attach(session):
            self._tidy(session, beyond=0)
            self._detach(session)

    @contextmanager
    def alone(self) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The file, ours alone, within a DuckDB that stays; and what it is called there."""
        with self._lock:
            session = self._ready()
            if session is None:
                with self._shared() as found:
                    yield found
                return
            went_well = False
            try:
                yield session, FILE
                went_well = True
            except duckdb_module().Error as error:
                raise failure(error, self.path) from error
            finally:
                self._release(session, went_well)

    @contextmanager
    def beside(self, *, in_order: bool, count: int = 1) -> Iterator[tuple[list[DuckDBPyConnection], str]]:
        """The file, for some long statements, each with a connection of its own, on a table that nobody else touches:
        threads of ours that want the file alone get it meanwhile. One such table at a time."""
        with self._loading:
            with self._lock:
                session = self._ready()
                if session is None:
                    with self._shared() as (connection, catalog), ExitStack() as cursors:
                        yield [cursors.enter_context(connection.cursor()) for _ in range(count)], catalog
                    return
                guests = [session.cursor() for _ in range(count)]
                self._guests += 1
            went_well = False
            try:
                guests[0].execute(f"SET preserve_insertion_order = {in_order}")  # for all of this DuckDB
                with self._given_up_on_stop(guests):
                    yield guests, FILE
                went_well = True
            except duckdb_module().Error as error:
                raise failure(error, self.path) from error
            finally:
                with suppress(duckdb_module().Error):
                    guests[0].execute("SET preserve_insertion_order = false")
                for guest in guests:
                    guest.close()
                with self._lock:
                    self._guests -= 1
                    self._release(session, went_well)

    @contextmanager
    def _given_up_on_stop(self, guests: list[DuckDBPyConnection]) -> Iterator[None]:
        """Interrupt the statements when the pipeline is told to stop: they may have minutes to go."""
        assert self.context is not None, "startup() comes first"
        stopping, done = self.context.stopping, threading.Event()

        def watch() -> None:
            while not done.wait(WATCH_SECONDS):
                if stopping.is_set():
                    for guest in guests:
                        guest.interrupt()

        watcher = threading.Thread(target=watch, name="walrelay load watcher", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _ready(self) -> DuckDBPyConnection | None:
        """Attach the file, if it is not; None when this same program has it open elsewhere."""
        if self._session is not None and self._served >= LONGEST_SERVICE and not self._held_since:
            self._session.close()
            self._session = None
            give_back_memory()
        session = self._session = self._session or self._new_session()
        if not self._held_since:
            self._served += 1
            if not self._patiently(lambda: self._attach(session)):
                return None
            self._held_since = time.monotonic()
        return session

    def _release(self, session: DuckDBPyConnection, went_well: bool) -> None:
        """Let go of the file, unless another thread of ours waits for it: with many tables, attaching takes longer than
        what is done. Readers elsewhere get their turn nevertheless."""
        with suppress(duckdb_module().Error):
            session.execute("ROLLBACK")
        if self._guests:
            return
        held = time.monotonic() - self._held_since
        if went_well and self._lock.is_wanted and held < LONGEST_HOLD:
            return
        self._held_since = 0.0
        if went_well:
            with suppress(duckdb_module().Error):  # what is committed is safe; the next one tries again
                self._tidy(session)
        self._detach(session)
        if held >= LONGEST_HOLD:
            time.sleep(FIRST_PAUSE)

    @contextmanager
    def _shared(self) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The file, which this same program has open elsewhere."""
        connection = self._connect()
        try:
            yield connection, catalog_of(connection)
        except duckdb_module().Error as error:
            raise failure(error, self.path) from error
        finally:
            connection.close()

    def _new_session(self) -> DuckDBPyConnection:
        session: DuckDBPyConnection = duckdb_module().connect()
        self._served = 0
        # Every file of the log is read once: remembering them would only take memory.
        settings = {"temp_directory": f"{self.path}.tmp", "enable_external_file_cache": "false", **self._settings}
        for name, value in settings.items():
            session.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
        # Detaching would otherwise write the last rows of every table that changed anew, for each batch.
        session.execute("PRAGMA disable_checkpoint_on_shutdown")
        return session

    def _attach(self, session: DuckDBPyConnection) -> bool:
        """False when this same program has the file open, and has to share it."""
        try:
            session.execute(f"ATTACH '{str(self.path).replace(chr(39), chr(39) * 2)}' AS {FILE}")
        except duckdb_module().Error as error:
            if "already attached" in str(error):
                return False
            raise
        session.execute(f"USE {FILE}")
        return True

    def _detach(self, session: DuckDBPyConnection) -> None:
        """Let go of the file, whatever happened; a DuckDB that cannot is thrown away."""
        try:
            session.execute("USE memory")
            session.execute(f"DETACH {FILE}")
        except duckdb_module().Error:
            self._session = None
            session.close()

    @contextmanager
    def opened(self) -> Iterator[DuckDBPyConnection]:
        """The file, ours alone; closed on the way out, and an open transaction rolled back."""
        with self._lock:
            connection = self._connect()
            try:
                yield connection
            except duckdb_module().Error as error:
                raise failure(error, self.path) from error
            finally:
                connection.close()

    @contextmanager
    def visited(self, *, writing: bool) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The file, by somebody who is no run: for a look beside a run of another process, and short."""

        def connect() -> DuckDBPyConnection:
            opened: DuckDBPyConnection = duckdb_module().connect(str(self.path), read_only=not writing)
            return opened

        connection = self._patiently(connect, VISIT_PAUSE)
        try:
            yield connection, catalog_of(connection)
        except duckdb_module().Error as error:
            raise failure(error, self.path) from error
        finally:
            connection.close()

    def _connect(self) -> DuckDBPyConnection:
        def connect() -> DuckDBPyConnection:
            opened: DuckDBPyConnection = duckdb_module().connect(str(self.path))
            # Set afterwards, since a program that has the file open itself must not be refused for other settings.
            for name, value in self._settings.items():
                opened.execute(f"SET {name} = '{value}'")
            return opened

        return self._patiently(connect)

    def _patiently(self, open_file: Callable[[], T], longest_pause: float = LONGEST_PAUSE) -> T:
        """Open the file; wait for others who have it."""
        assert self.context is not None, "startup() comes first"
        deadline = time.monotonic() + self.context.settings.busy_timeout.total_seconds()
        told, pause = False, FIRST_PAUSE
        while True:
            try:
                return open_file()
            except duckdb_module().Error as error:
                problem = failure(error, self.path)
                if not isinstance(problem, DestinationBusyError) or time.monotonic() >= deadline:
                    raise problem from error
                if not told and pause >= LONGEST_PAUSE:
                    self.context.notify(
                        Notice.warning(
                            "waiting for the destination",
                            f"waiting: {problem.message}",
                            code=problem.code,
                            message=problem.message,
                        )
                    )
                    told = True
                time.sleep(pause)
                # A reader is often gone at once.
                pause = min(2 * pause, longest_pause)


def give_back_memory() -> None:
    """Let the C library return what was freed. It keeps it for each thread apart, and every DuckDB has new threads."""
    with suppress(AttributeError, OSError):  # only glibc has this, and needs it
        ctypes.CDLL(None).malloc_trim(0)


def catalog_of(connection: DuckDBPyConnection) -> str:
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


def failure(error: Exception, path: Path) -> DestinationError | DiskFullError:
    """DuckDB's error as ours. Its text may quote values, so only what we recognise is repeated."""
    said = str(error)
    if "Could not set lock" in said or "Conflicting lock" in said or "used by another process" in said:
        holder = re.search(r"\(PID (\d+)\)", said)
        who = f"process {holder[1]}" if holder else "another process"
        return DestinationBusyError(f"{path} is open in {who}")
    if "different configuration" in said:
        return DestinationBusyError(f"{path} is open in this same program, with other settings")
    if "No space left" in said or "out of disk" in said.lower():
        return DiskFullError(f"the disk is full: {path.parent}", hint="Free some space, then run again.")
    if "not a valid DuckDB database" in said or "storage version" in said.lower() or "newer version" in said:
        return DestinationCorruptError(f"{path} is not a database that this DuckDB can read")
    if "ermission denied" in said or "Read-only file system" in said or "Cannot open file" in said:
        return DestinationNotWritableError(f"cannot write to {path}")
    return DestinationError(f"DuckDB failed ({type(error).__name__})", hint="Run again with --debug for its own words.")


def duckdb_module() -> Any:
    try:
        import duckdb  # an extra
    except ImportError as error:
        raise MissingExtraError("DuckDB is not installed", hint="pip install 'walrelay[duckdb]'") from error
    return duckdb
