"""A destination that fails on purpose: it rejects, loses answers, promises nothing, holds or is slow (SEMANTICS 24)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.destinations.base import Destination, DestinationContext, Identity, WriteResult
from walrelay.errors import DestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

__all__ = ["FaultyDestination", "Held", "LastingFaultError", "Method", "PassingFaultError"]

Method = Literal["startup", "drop_table_for_copy", "write_table_rows", "write_events", "applied_lsn"]
T = TypeVar("T")
FOR_EVER = 1_000_000_000


class PassingFaultError(DestinationError):
    code = "testing.passing_fault"
    default_hint = "A test made this fail; it will work again."
    retryable = True


class LastingFaultError(DestinationError):
    code = "testing.lasting_fault"
    default_hint = "A test made this fail, and waiting will not help."


class Held:
    """Calls that wait: `reached` once one does, until `release()`. At the end of a `with` they are let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def pass_by(self) -> None:
        """Wait here, if it is still held."""
        if not self._released.is_set():
            self.reached.set()
            self._released.wait()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass
class _Fault:
    """What happens to the next `left` calls of a method that concern a table (None: any)."""

    method: Method
    table: str | None
    left: int
    before: Callable[[], None] = field(default=lambda: None)
    answer: Callable[[Any], Any] = field(default=lambda result: result)


class FaultyDestination:
    """Does what the wrapped destination does, but for the faults that it was told.

    A fault is for one method, for so many calls (`times`; without it for ever) and, with `table`, only for calls that
    concern that table: `public.orders`. The error's context names that table, as a destination's own errors may,
    unless `names_table` is false. Faults may be added while a pipeline runs, and `heal()` takes all away.
    `calls` counts what was asked for, `done` what took effect.
    """

    def __init__(self, inner: Destination) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities
        self.dialect = inner.dialect
        self.calls: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._faults: list[_Fault] = []
        self._held: list[Held] = []
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------------------------- faults

    def reject(
        self,
        method: Method,
        *,
        table: str | None = None,
        times: int = FOR_EVER,
        error: type[DestinationError] = PassingFaultError,
        names_table: bool = True,
    ) -> None:
        """Raise before anything was done."""
        fail = _failure(error, f"{method} was rejected", table if names_table else None)
        self._add(_Fault(method, table, times, before=fail))

    def lose_response(
        self,
        method: Method,
        *,
        table: str | None = None,
        times: int = FOR_EVER,
        error: type[DestinationError] = PassingFaultError,
        names_table: bool = True,
    ) -> None:
        """Raise after all was done: the caller cannot know."""
        fail = _failure(error, f"the answer of {method} was lost", table if names_table else None)
        self._add(_Fault(method, table, times, answer=lambda _: fail()))

    def only_accept(
        self, method: Literal["write_table_rows", "write_events"], *, table: str | None = None, times: int = FOR_EVER
    ) -> None:
        """Do all, but answer that it is not durable yet."""
        self._add(_Fault(method, table, times, answer=lambda result: replace(result, durable=False)))

    def hold(self, method: Method, *, table: str | None = None, times: int = FOR_EVER) -> Held:
        """Let calls wait, before anything is done, until released."""
        held = Held()
        self._held.append(held)
        self._add(_Fault(method, table, times, before=held.pass_by))
        return held

    def slow(self, method: Method, seconds: float, *, table: str | None = None, times: int = FOR_EVER) -> None:
        """Let calls take longer."""
        self._add(_Fault(method, table, times, before=lambda: time.sleep(seconds)))

    def heal(self) -> None:
        """No more faults; who is held goes on."""
        with self._lock:
            self._faults.clear()
            held, self._held = self._held, []
        for one in held:
            one.release()

    def _add(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    # ----------------------------------------------------------------------------------------------------- contract

    def startup(self, context: DestinationContext) -> None:
        self._call("startup", lambda: [], lambda: self.inner.startup(context))

    def shutdown(self) -> None:
        self.inner.shutdown()

    def staging_root(self) -> Path | None:
        return self.inner.staging_root()

    def identity(self) -> Identity | None:
        ask: Callable[[], Identity | None] = getattr(self.inner, "identity", lambda: None)
        return ask()

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        names = [str(schema.name)]
        self._call("drop_table_for_copy", lambda: names, lambda: self.inner.drop_table_for_copy(schema))

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        names = [str(schema.name)]
        return self._call("write_table_rows", lambda: names, lambda: self.inner.write_table_rows(schema, rows))

    def write_events(self, batch: EventBatch) -> WriteResult:
        def names() -> list[str]:
            return [str(part.schema.name) for part in batch.tables()]

        return self._call("write_events", names, lambda: self.inner.write_events(batch))

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return self._call("applied_lsn", lambda: [], lambda: self.inner.applied_lsn(table))

    def _call(self, method: Method, names: Callable[[], list[str]], work: Callable[[], T]) -> T:
        self.calls[method] += 1
        faults = self._due(method, names)
        for fault in faults:
            fault.before()
        result = work()
        self.done[method] += 1
        for fault in faults:
            result = fault.answer(result)
        return result

    def _due(self, method: Method, names: Callable[[], list[str]]) -> list[_Fault]:
        with self._lock:
            mine = [fault for fault in self._faults if fault.method == method and fault.left > 0]
        if not mine:
            return []
        concerned = names() if any(fault.table is not None for fault in mine) else []
        with self._lock:
            due = [fault for fault in mine if fault.table is None or fault.table in concerned]
            for fault in due:
                fault.left -= 1
        return due


def _failure(error: type[DestinationError], message: str, table: str | None) -> Callable[[], None]:
    def fail() -> None:
        raise error(message, context={} if table is None else {"table": table})

    return fail
