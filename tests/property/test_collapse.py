"""A batch that is collapsed leads to what its changes lead to one by one, whatever batch they are cut into."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from walrelay.changes.collapse import Key, Latest, latest, net
from walrelay.model.changes import Change, OldKind, Op
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName

TABLE = TableName("public", "t")
Rows = dict[Key, dict[str, Any]]


class Source:
    """A table with a key, and a stream of its changes as Postgres sends them."""

    def __init__(self, *, full: bool) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes: list[Change] = []
        self.full = full
        self._values = 0

    def do(self, op: str, key: int, other: int, wide: bool) -> None:
        """One statement; what cannot be done changes nothing. `wide`: the update leaves the wide column alone."""
        self._values += 1
        match op:
            case "insert" if key not in self.rows:
                self.rows[key] = {"id": key, "n": self._values, "wide": f"w{self._values}"}
                self._send("insert", self.rows[key], None, None)
            case "update" if key in self.rows:
                self._update(key, key, wide)
            case "move" if key in self.rows and other not in self.rows:
                self._update(key, other, wide)
            case "delete" if key in self.rows:
                old = self.rows.pop(key)
                self._send("delete", None, old if self.full else {"id": key}, "row" if self.full else "key")
            case "truncate":
                self.rows.clear()
                self._send("truncate", None, None, None)

    def _update(self, key: int, to: int, wide: bool) -> None:
        old = self.rows.pop(key)
        new = {"id": to, "n": self._values, "wide": old["wide"] if wide else f"w{self._values}"}
        self.rows[to] = new
        sent = {**new, "wide": None} if wide else new
        kind: OldKind | None = "row" if self.full else "key" if to != key else None
        before = {"row": old, "key": {"id": key}, None: None}[kind]
        self._send("update", sent, before, kind, ("wide",) if wide else ())

    def _send(
        self,
        op: Op,
        row: dict[str, Any] | None,
        old: dict[str, Any] | None,
        kind: OldKind | None,
        unchanged: tuple[str, ...] = (),
    ) -> None:
        lsn, row, old = Lsn(len(self.changes) + 1), row and dict(row), old and dict(old)
        self.changes.append(Change(lsn, lsn, 0, 1, datetime.now(UTC), TABLE, op, 1, row, old, kind, unchanged))


def applied(rows: Rows, batch: Latest) -> Rows:
    """The destination after the batch."""
    before = rows
    after = {} if batch.is_truncated else {key: row for key, row in rows.items() if key not in batch.gone}
    for key, put in batch.puts.items():
        held = before[put.origin] if put.lacking and put.origin is not None else {}
        after[key] = {**put.row, **{name: held[name] for name in put.lacking}}
    return after


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "update", "update", "move", "delete", "truncate"]),
        st.integers(1, 4),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=500, deadline=None)
@given(STEPS, st.booleans(), st.lists(st.integers(1, 12), max_size=10))
def test_collapsed_batches_lead_to_the_source(steps: list[Any], full: bool, sizes: list[int]) -> None:
    source = Source(full=full)
    for step in steps:
        source.do(*step)
    rows: Rows = {}
    left = list(source.changes)
    for size in [*sizes, len(left)]:
        batch, left = left[:size], left[size:]
        rows = applied(rows, latest(batch, ("id",)))
    assert rows == {(key,): row for key, row in source.rows.items()}


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_net_rows_of_a_table_without_a_key_lead_to_the_source(steps: list[Any]) -> None:
    source = Source(full=True)
    for step in steps:
        source.do(*step)
    is_truncated, rows = net(source.changes)
    assert is_truncated == any(one.op == "truncate" for one in source.changes)
    assert rows == Counter(tuple(row.values()) for row in source.rows.values())
