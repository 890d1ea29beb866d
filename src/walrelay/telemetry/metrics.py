"""Every metric of a pipeline, as data: the endpoint, the page docs/reference/metrics.md and the tests read it here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from walrelay import __version__
from walrelay.log.status import CaptureStatus
from walrelay.model.phases import PHASE_NAMES
from walrelay.telemetry.exposition import Metric, Sample, exposition
from walrelay.telemetry.look import Look, Stock
from walrelay.workers.batch_counts import BOUNDS, BatchCounts
from walrelay.workers.status import PipelineStatus, TableStatus

T = TypeVar("T")
Samples = Iterable[Sample]


def metrics_text(look: Look) -> str:
    """What a scrape is answered with."""
    return exposition(METRICS, look, {"pipeline": look.pipeline})


def chosen_tables(look: Look) -> tuple[TableStatus, ...]:
    """Those that have series of their own: in error first, then by name."""
    tables = look.status.tables if look.status is not None else ()
    return tuple(sorted(tables, key=lambda one: one.phase != "errored")[: look.limits.tables])


def _one(value: float | bool | None) -> list[Sample]:
    return [] if value is None else [Sample(float(value))]


def _of_status(ask: Callable[[PipelineStatus], float | None]) -> Callable[[Look], Samples]:
    return lambda look: [] if look.status is None else _one(ask(look.status))


def _of_capture(ask: Callable[[CaptureStatus], float | None]) -> Callable[[Look], Samples]:
    """Nothing once what capture said is too old to be true."""
    return lambda look: [] if look.capture is None else _one(ask(look.capture))


def _of_stock(ask: Callable[[Stock], float]) -> Callable[[Look], Samples]:
    return lambda look: [] if look.stock is None else _one(ask(look.stock))


def _of_tables(ask: Callable[[Look, TableStatus], Sample | None]) -> Callable[[Look], Samples]:
    return lambda look: [found for one in chosen_tables(look) if (found := ask(look, one)) is not None]


def _phases(look: Look) -> Iterator[Sample]:
    if look.status is not None:
        count = Counter(one.phase for one in look.status.tables)
        yield from (Sample(count[phase], (phase,)) for phase in PHASE_NAMES)


def _hidden_tables(look: Look) -> Samples:
    return [] if look.status is None else [Sample(len(look.status.tables) - len(chosen_tables(look)))]


def _durations(look: Look) -> Iterator[Sample]:
    if look.status is None:
        return
    counts: BatchCounts = look.status.batches
    for bound, count in zip(BOUNDS, counts.within, strict=True):
        yield Sample(count, suffix="_bucket", bound=f"{bound:g}")
    yield Sample(counts.batches, suffix="_bucket", bound="+Inf")
    yield Sample(counts.seconds, suffix="_sum")
    yield Sample(counts.batches, suffix="_count")


def _table_lag(look: Look, table: TableStatus) -> Sample | None:
    end = look.status.log_end if look.status is not None else None
    if end is None or table.position is None:
        return None
    return Sample(max(0, end - table.position), (str(table.name),))


def _copied(ask: Callable[[float, float], float]) -> Callable[[Look], Samples]:
    def sample(look: Look, table: TableStatus) -> Sample | None:
        end = look.heard.last_copies.get(str(table.name))
        return None if end is None else Sample(ask(end.rows, end.seconds), (str(table.name),))

    return _of_tables(sample)


def _attempts(look: Look, table: TableStatus) -> Sample:
    return Sample(look.heard.failed_attempts.get(str(table.name), 0), (str(table.name),))


def _treated(look: Look) -> Iterator[Sample]:
    names = {str(one.name) for one in chosen_tables(look)}
    for table, roads in (look.stock.treated if look.stock is not None else {}).items():
        if table in names or not look.status or not look.status.tables:
            for road, kinds in roads.items():
                yield from (Sample(count, (table, road, kind.lower())) for kind, count in kinds.items())


def _quarantined(look: Look) -> Samples:
    return [] if look.stock is None else [Sample(sum(look.stock.quarantined.values()))]


def _slot_at_risk(look: Look) -> Samples:
    return [Sample(look.slot_risk is not None)] if look.slot_known else []


METRICS: tuple[Metric[Look], ...] = (
    Metric(
        "walrelay_info",
        "gauge",
        "Always 1; says what runs.",
        lambda look: [Sample(1, (__version__, look.destination))],
        ("version", "destination"),
    ),
    Metric(
        "walrelay_start_time_seconds",
        "gauge",
        "When the pipeline was started, in seconds since 1970.",
        lambda look: _one(look.started_at),
    ),
    Metric(
        "walrelay_look_time_seconds",
        "gauge",
        "When the pipeline was last looked at: all values are those of that moment.",
        lambda look: _one(look.at),
    ),
    Metric(
        "walrelay_loop_idle_seconds",
        "gauge",
        "Since the pipeline's loop last took a turn or a batch was through.",
        lambda look: _one(look.stalled_seconds),
    ),
    Metric(
        "walrelay_paused",
        "gauge",
        "1 while nothing is written because somebody has asked for that.",
        _of_status(lambda status: status.paused),
    ),
    # ------------------------------------------------------------------------------------------------ source and lag
    Metric(
        "walrelay_source_up",
        "gauge",
        "1 while changes come from the source, 0 while it is not heard. Then the lag is not known, and has no sample.",
        lambda look: _one(look.source_up),
    ),
    Metric(
        "walrelay_lag_seconds",
        "gauge",
        "Age of the oldest change that is not in the destination yet; 0 when there is none.",
        lambda look: _one(look.lag_seconds),
    ),
    Metric(
        "walrelay_lag_bytes",
        "gauge",
        "WAL that may hold changes the destination lacks: in the log but not applied, or not in the log yet.",
        lambda look: _one(look.lag_bytes),
    ),
    Metric(
        "walrelay_lag_limit_seconds",
        "gauge",
        "The lag from which on the pipeline is not ready (lag_limit).",
        lambda look: _one(look.limits.lag_limit.total_seconds()),
    ),
    Metric(
        "walrelay_slot_retained_bytes",
        "gauge",
        "WAL that the source keeps for the slot.",
        _of_capture(lambda capture: capture.retained_wal_bytes),
    ),
    Metric(
        "walrelay_slot_safe_bytes",
        "gauge",
        "WAL that may still be written until Postgres may give the slot up; none without such a limit.",
        _of_capture(lambda capture: capture.safe_wal_bytes),
    ),
    Metric(
        "walrelay_slot_at_risk",
        "gauge",
        "1 when Postgres may soon give the slot up, or it keeps more WAL than wal_limit allows.",
        _slot_at_risk,
    ),
    # ----------------------------------------------------------------------------------------------- changes, batches
    Metric(
        "walrelay_changes_total",
        "counter",
        "Changes written to the destination.",
        _of_status(lambda status: status.changes),
    ),
    Metric(
        "walrelay_batches_total",
        "counter",
        "Batches of changes that became durable in the destination.",
        _of_status(lambda status: status.batches.batches),
    ),
    Metric(
        "walrelay_batch_duration_seconds",
        "histogram",
        "From giving a batch to the destination until it was durable.",
        _durations,
    ),
    Metric(
        "walrelay_batch_retries_total",
        "counter",
        "Batches that failed and were sent again, or went on without the table that failed.",
        _of_status(lambda status: status.batches.retries),
    ),
    # -------------------------------------------------------------------------------------------------- copies, tables
    Metric(
        "walrelay_copied_rows_total",
        "counter",
        "Rows of copies that were completed.",
        lambda look: _one(look.heard.rows_copied),
    ),
    Metric(
        "walrelay_copies_total",
        "counter",
        "Copies of tables that were completed.",
        lambda look: _one(look.heard.copies),
    ),
    Metric(
        "walrelay_copying_rows",
        "gauge",
        "Rows read so far by copies under way, as far as Postgres tells.",
        lambda look: _one(look.heard.rows_being_read),
    ),
    Metric("walrelay_tables", "gauge", "Tables by phase.", _phases, ("phase",)),
    Metric(
        "walrelay_tables_without_series",
        "gauge",
        "Tables that have no series of their own, since there are more than the setting `tables` allows.",
        _hidden_tables,
    ),
    Metric(
        "walrelay_table_phase",
        "gauge",
        "Always 1; says in which phase the table is.",
        _of_tables(lambda _look, table: Sample(1, (str(table.name), table.phase))),
        ("table", "phase"),
    ),
    Metric(
        "walrelay_table_error",
        "gauge",
        "1 for a table that is in error, with the error's code (docs/errors.md).",
        _of_tables(
            lambda _look, table: Sample(1, (str(table.name), table.code or "")) if table.phase == "errored" else None
        ),
        ("table", "code"),
    ),
    Metric(
        "walrelay_table_failures_total",
        "counter",
        "How often the table failed, to be tried again or given up.",
        _of_tables(_attempts),
        ("table",),
    ),
    Metric(
        "walrelay_table_lag_bytes",
        "gauge",
        "WAL between the log's end and what is in the destination of the table.",
        _of_tables(_table_lag),
        ("table",),
    ),
    Metric(
        "walrelay_table_copied_rows",
        "gauge",
        "Rows of the table's last copy.",
        _copied(lambda rows, _seconds: rows),
        ("table",),
    ),
    Metric(
        "walrelay_table_copy_seconds",
        "gauge",
        "How long the table's last copy took, with its hand-over.",
        _copied(lambda _rows, seconds: seconds),
        ("table",),
    ),
    Metric(
        "walrelay_treated_values",
        "gauge",
        "Values the destination cannot hold, treated by policy: of the last copy, or of changes since the log began.",
        _treated,
        ("table", "road", "kind"),
    ),
    Metric(
        "walrelay_quarantined_changes",
        "gauge",
        "Changes that could not be decoded and still hold their table.",
        _quarantined,
    ),
    # ------------------------------------------------------------------------------------------------ log and capture
    Metric("walrelay_log_bytes", "gauge", "Size of the change log's files.", _of_stock(lambda stock: stock.log_bytes)),
    Metric(
        "walrelay_log_segments", "gauge", "Segments of the change log.", _of_stock(lambda stock: stock.log_segments)
    ),
    Metric(
        "walrelay_capture_rows_total",
        "counter",
        "Changes landed in the log since capture was started.",
        _of_capture(lambda capture: capture.rows),
    ),
    Metric(
        "walrelay_capture_transactions_total",
        "counter",
        "Transactions landed in the log since capture was started.",
        _of_capture(lambda capture: capture.transactions),
    ),
    Metric(
        "walrelay_capture_reconnects_total",
        "counter",
        "How often capture had to connect again.",
        _of_capture(lambda capture: capture.reconnects),
    ),
    Metric(
        "walrelay_capture_lag_bytes",
        "gauge",
        "WAL between the source's end and what the log holds.",
        _of_capture(lambda capture: capture.lag_bytes),
    ),
    Metric(
        "walrelay_capture_buffer_bytes",
        "gauge",
        "Changes that capture holds in memory.",
        _of_capture(lambda capture: capture.memory_bytes),
    ),
    Metric(
        "walrelay_capture_open_transaction_bytes",
        "gauge",
        "Bytes received of transactions that are not committed yet, in memory and on disk.",
        _of_capture(lambda capture: capture.open_transaction_bytes),
    ),
    # ------------------------------------------------------------------------------------------------------ this side
    Metric(
        "walrelay_memory_bytes",
        "gauge",
        "Resident memory by process: the driver, Spark's JVM, capture, Spark's Python workers. Linux only.",
        lambda look: [Sample(size, (process,)) for process, size in sorted(look.memory.items())],
        ("process",),
    ),
    Metric(
        "walrelay_hooks_total",
        "counter",
        "What became of what the hooks were to be told.",
        lambda look: [Sample(count, (outcome,)) for outcome, count in sorted(look.hooks.items())],
        ("outcome",),
    ),
)
