"""The log of a run: each event a constant lower-case phrase and its fields, as text or as one JSON object a line.

It is a listener like the view on a terminal, and hears nothing else. Never a row value or a secret: events carry names,
counts, positions and the messages of our own errors, which hold neither (SEMANTICS 22).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from walrelay.config.choices import LogFormat, LogLevel
from walrelay.errors import CopyAgainError, WalrelayError
from walrelay.model.names import TableName
from walrelay.model.notice import as_notice
from walrelay.workers.report import Silent, TableReport

LOGGER = logging.getLogger("walrelay.run")
_OURS = "walrelay"
_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


def log_event(level: int, event: str, fields: Mapping[str, object]) -> None:
    """One line. With any other handler on the logger `walrelay.run` the fields are the record's `fields`."""
    LOGGER.log(level, event, extra={"fields": dict(fields)})


def error_fields(error: WalrelayError) -> dict[str, object]:
    """What is said of an error: not its context, which is for programs."""
    return {"code": error.code, "message": error.message, **({"hint": error.hint} if error.hint else {})}


class LogListener(Silent):
    """Writes down what it hears."""

    def run_started(self, tables: dict[TableName, int]) -> None:
        log_event(logging.INFO, "copies begin", {"tables": len(tables)})

    def table_started(self, table: TableName, attempt: int) -> None:
        log_event(logging.INFO, "table copy started", {"table": str(table), "attempt": attempt})

    def table_writing(self, table: TableName, rows: int) -> None:
        log_event(logging.DEBUG, "table rows landed", {"table": str(table), "rows": rows})

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        if isinstance(error, CopyAgainError):
            log_event(logging.INFO, "table is copied again", {"table": str(table), **error_fields(error)})
        else:
            log_event(
                logging.WARNING,
                "table is tried again",
                {"table": str(table), "after_seconds": round(seconds, 3), **error_fields(error)},
            )

    def table_finished(self, report: TableReport) -> None:
        fields = {"table": str(report.name), "attempts": report.attempts, "seconds": round(report.seconds, 3)}
        if report.error is not None:
            log_event(logging.ERROR, "table is put aside", {**fields, **error_fields(report.error)})
            return
        treated = {f"treated_{special.name.lower()}": count for special, count in report.treated.items()}
        log_event(logging.INFO, "table copied", {**fields, "rows": report.rows, **treated})

    def notice(self, message: str) -> None:
        said = as_notice(message)
        log_event(logging.WARNING if said.weight == "warning" else logging.INFO, said.event, said.fields)


def format_for(wanted: LogFormat, stream: TextIO) -> LogFormat:
    """`auto` is settled by where it goes: text for a terminal, JSON elsewhere."""
    if wanted != "auto":
        return wanted
    return "text" if stream.isatty() else "json"


@contextmanager
def logging_to(stream: TextIO | None, wanted: LogFormat, level: LogLevel, pipeline: str) -> Iterator[None]:
    """Meanwhile all that is logged goes there, in this form. Of other packages' lines only where they come from: what
    they say may hold anything."""
    stream = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Json(pipeline) if format_for(wanted, stream) == "json" else _Text(pipeline))
    ours, root = logging.getLogger(_OURS), logging.getLogger()
    before = ours.level, ours.propagate
    ours.setLevel(level.upper())
    ours.propagate = False
    foreign = logging.StreamHandler(stream)
    foreign.setFormatter(handler.formatter)
    foreign.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    ours.addHandler(handler)
    root.addHandler(foreign)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        root.removeHandler(foreign)
        ours.level, ours.propagate = before


def moment(at: float) -> str:
    """A moment as logs and hooks write it: UTC, to the millisecond."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03}Z"


def _contents(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    if record.name != _OURS and not record.name.startswith(_OURS + "."):
        return "a library has something to say", {"logger": record.name}
    given = record.__dict__.get("fields")
    others = {name: value for name, value in record.__dict__.items() if name not in _STANDARD and name != "fields"}
    return str(record.msg), {**others, **(given if isinstance(given, dict) else {})}


class _Json(logging.Formatter):
    """One object a line."""

    def __init__(self, pipeline: str) -> None:
        super().__init__()
        self._pipeline = pipeline

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _contents(record)
        head = {"at": moment(record.created), "level": record.levelname.lower(), "event": event}
        return json.dumps({**head, "pipeline": self._pipeline, **fields}, default=str, ensure_ascii=False)


class _Text(logging.Formatter):
    """Time, level, phrase, then the fields as name=value."""

    def __init__(self, pipeline: str) -> None:
        super().__init__()
        self._pipeline = pipeline

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _contents(record)
        said = "".join(f" {name}={_word(value)}" for name, value in {"pipeline": self._pipeline, **fields}.items())
        return f"{moment(record.created)} {record.levelname:<7} {event}{said}"


def _word(value: object) -> str:
    """Quoted where it would not read as one word; a terminal obeys no control character of it."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
