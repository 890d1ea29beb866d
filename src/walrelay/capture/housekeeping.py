"""What capture does beside capturing: merge and remove segments, look at the slot, write heartbeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from walrelay.capture.writer import HEARTBEAT
from walrelay.capture.xid_samples import XidSampler
from walrelay.config.settings import CaptureSettings
from walrelay.errors import SourceError, WalrelayError
from walrelay.log.compaction import Compactor
from walrelay.log.lease import Lease
from walrelay.log.manifest import Manifest
from walrelay.log.readers import ReaderPositions
from walrelay.log.retention import Retention
from walrelay.log.storage import Storage
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.slot import Slot, find_slot
from walrelay.postgres.source import PostgresSource

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
SLOT_SECONDS = 5.0
RETAIN_SECONDS = 30.0
XIDS_SECONDS = 60.0


class Housekeeping:
    """A thread that takes a turn every second. A failure of the log's storage reaches `check`; the source's do not
    matter here: who captures notices them."""

    def __init__(
        self,
        source: PostgresSource,
        slot: str,
        storage: Storage,
        manifest: Manifest,
        lease: Lease,
        settings: CaptureSettings,
    ) -> None:
        self._source = source
        self._slot = slot
        self._settings = settings
        self._compactor = Compactor(storage, manifest, lease.epoch, check=lease.check)
        self._retention = Retention(
            storage, manifest, ReaderPositions(storage), max_age=settings.retain_age, check=lease.check
        )
        self.xids = XidSampler(storage, manifest, lease.check)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._connection: Connection | None = None
        self._done_at: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="walrelay-housekeeping", daemon=True)
        self.slot: Slot | None = None
        """As it was last seen."""
        self.every_second: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._compactor.sweep_orphans()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def check(self) -> None:
        """Raise what went wrong."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while not self._stopping.wait(TURN_SECONDS):
            try:
                self._turn()
            except SourceError:
                self._forget_connection()
            except WalrelayError as error:
                log.warning("housekeeping failed", extra={"code": error.code})
                self._error = None if error.retryable else error
            except BaseException as error:
                self._error = error
                raise

    def _turn(self) -> None:
        self.every_second()
        if self._settings.compact:
            self._compactor.run_once()
        if self._settings.retain_age is not None and self._is_time("retain", RETAIN_SECONDS):
            self._retention.run_once(time.time())
        heartbeat = self._settings.heartbeat
        if heartbeat is not None and self._is_time("heartbeat", heartbeat.total_seconds()):
            with talking("writing a heartbeat"):
                self._connected().execute("SELECT pg_catalog.pg_logical_emit_message(false, %s, '')", (HEARTBEAT,))
        if self._is_time("xids", XIDS_SECONDS):
            self.xids.sample(self._connected())
        if self._is_time("slot", SLOT_SECONDS):
            self.slot = find_slot(self._connected(), self._slot)

    def _is_time(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now - self._done_at.get(what, -seconds) < seconds:
            return False
        self._done_at[what] = now
        return True

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._source, application="walrelay housekeeping", stopping=self._stopping)
        return self._connection

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
