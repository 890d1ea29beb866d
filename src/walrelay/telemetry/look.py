"""One look at a running pipeline: everything that metrics, health and hooks are made from, as it was at one moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from walrelay.config.observability import MetricsSettings
from walrelay.control.status import quarantined_by_table, treated_by_table
from walrelay.log.identity import read_lineage
from walrelay.log.status import SILENT_SECONDS, STREAMING, CaptureStatus
from walrelay.log.storage import open_storage
from walrelay.log.view import LogView
from walrelay.pipeline import Pipeline
from walrelay.telemetry.listeners import Counting, Heard
from walrelay.telemetry.memory import memory_of
from walrelay.workers.status import PipelineStatus

STOCK_SECONDS = 10.0
"""Between two looks at what takes reading: the log's size, the store's facts, the quarantine."""
_SAFE_PART = 0.2
"""A slot is at risk when less than this part of what Postgres lets it keep is left."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What has come together in log and store."""

    log_bytes: int = 0
    log_segments: int = 0
    treated: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """By table, then `copy` (the last one) or `changes` (since the log began), then kind."""
    quarantined: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """Never changes. What could not be found out is None."""

    pipeline: str
    destination: str
    at: float
    """Seconds since 1970."""
    started_at: float
    limits: MetricsSettings
    heard: Heard
    status: PipelineStatus | None = None
    stock: Stock | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    hooks: Mapping[str, int] = field(default_factory=dict)
    failure: Exception | None = None
    """Why a part of it could not be found out."""
    ended: bool = False

    @property
    def capture(self) -> CaptureStatus | None:
        """What capture says, unless that is too old to be true."""
        said = self.status.capture if self.status is not None else None
        return said if said is not None and self.at - said.at <= SILENT_SECONDS else None

    @property
    def source_up(self) -> bool | None:
        """Whether changes come from the source; None before there is anybody who would know."""
        if self.status is None or self.status.capture is None:
            return None
        capture = self.capture
        return capture is not None and capture.state == STREAMING

    @property
    def lag_seconds(self) -> float | None:
        return self.status.lag_seconds if self.status is not None else None

    @property
    def lag_bytes(self) -> int | None:
        """WAL that may hold changes the destination lacks; None while the source is not heard."""
        if not self.source_up or self.status is None or self.capture is None:
            return None
        end, position = self.status.log_end, self.status.position
        waiting = end - position if end is not None and position is not None and end > position else 0
        return self.capture.lag_bytes + waiting

    @property
    def is_behind(self) -> bool | None:
        """Whether the lag is over its limit; None when it is not known."""
        lag = self.lag_seconds
        return None if lag is None else lag > self.limits.lag_limit.total_seconds()

    @property
    def stalled_seconds(self) -> float | None:
        """Since the pipeline's loop last moved; None before it has begun."""
        moved = self.status.moved_at if self.status is not None else None
        return None if moved is None else max(0.0, time.monotonic() - moved)

    @property
    def slot_risk(self) -> str | None:
        """Why the slot may be lost or the source's disk filled, when it is so; see `slot_known`."""
        capture = self.capture
        if capture is None or capture.retained_wal_bytes is None:
            return None
        if capture.wal_status in ("unreserved", "lost"):
            return f"Postgres calls the slot's WAL {capture.wal_status}"
        kept, safe, limit = capture.retained_wal_bytes, capture.safe_wal_bytes, self.limits.wal_limit
        if safe is not None and safe < _SAFE_PART * (max(safe, 0) + kept):
            return f"the slot keeps {kept} bytes of WAL; {max(safe, 0)} bytes more, and Postgres gives it up"
        if limit is not None and kept > limit:
            return f"the slot keeps {kept} bytes of WAL, more than the limit of {limit}"
        return None

    @property
    def slot_known(self) -> bool:
        return self.capture is not None and self.capture.retained_wal_bytes is not None


class Looker:
    """Looks at a pipeline. For one thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        counting: Counting,
        limits: MetricsSettings,
        hooks: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._pipeline = pipeline
        self._counting = counting
        self._limits = limits
        self._hooks = hooks
        self._started_at = time.time()
        self._stock: Stock | None = None
        self._stock_at = 0.0
        self._view: LogView | None = None

    def look(self, *, ended: bool = False) -> Look:
        """Now. What fails is left out and said: who watches must not end what is watched."""
        status: PipelineStatus | None = None
        failure: Exception | None = None
        try:
            status = self._pipeline.status()
            if status is not None and time.monotonic() - self._stock_at > STOCK_SECONDS:
                self._stock, self._stock_at = self._count_stock(), time.monotonic()
        except Exception as error:  # whatever it is: the pipeline says itself what it cannot do
            failure = error
        capture = status.capture if status is not None else None
        return Look(
            pipeline=self._pipeline.id,
            destination=self._pipeline.destination.name,
            at=time.time(),
            started_at=self._started_at,
            limits=self._limits,
            heard=self._counting.heard(),
            status=status,
            stock=self._stock,
            memory=memory_of(capture.pid if capture is not None else None),
            hooks=self._hooks(),
            failure=failure,
            ended=ended,
        )

    def _count_stock(self) -> Stock | None:
        if self._view is None:
            self._view = LogView(open_storage(str(self._pipeline.log)))
        view, store = self._view, self._pipeline.store
        if read_lineage(view.storage) is None:
            return None
        entries, names = view.entries(), store.get_table_mappings()
        return Stock(
            log_bytes=sum(entry.bytes for entry in entries),
            log_segments=len(entries),
            treated=treated_by_table(store, names, view.treated()),
            quarantined=quarantined_by_table(store, view),
        )
