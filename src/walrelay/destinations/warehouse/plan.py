"""What is to be done with a table in one transaction, as data; each service has the SQL for it.

A stage's columns are ours: `n0`… the row's values, by the places that columns have in the table. For a table with a key
one row for each key, `is_put` whether there is a row under it in the end (else only the key has values); where changes
left values out (unchanged TOAST) `l3` whether the batch lacks column 3, `o0`… the key under which the table has the row
(its own where it has not moved), `came` whether it came within the batch, and so is nowhere, `early` whether the copy
may rightly not have it. For a table without a key `more`: 1 for a row to put, -3 for three equal ones that go; `id`
tells these apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import unsent_values
from walrelay.errors import CopyAgainError, MissingRowError, WalrelayError
from walrelay.model.lsn import Lsn
from walrelay.model.schema import Column


class Step(Enum):
    """In the order in which they are done. All of them are behind the guard that the table is where the batch begins,
    and the position that is reached is recorded with them."""

    REFUSE_UNSENT = "rows that came without a value that nobody has: an error"
    FILL = "values that were left out, from the rows that are there, into the stage"
    REFUSE_MISSING = "rows whose values could not be filled, or of which fewer are there than go: an error"
    KEEP_REST = "of equal rows some of which go: those that stay, into the stage"
    CLEAR = "all rows go"
    TAKE_AWAY = "rows go whose keys are in the stage, or that equal one there which goes"
    PUT = "rows of the stage come"


@dataclass(frozen=True)
class Plan:
    """For one table's part of a batch."""

    table: str
    """The place of the table, of its state, and of the stage."""
    state: str
    stage: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    """Places of the key's columns; none when rows may be equal."""
    lacking: tuple[int, ...]
    """Places of columns that some change left out."""
    steps: tuple[Step, ...]
    since: Lsn
    """Where the table must be, and of which copy, for the batch to be taken: it holds what came after that."""
    lsn: Lsn
    """Where it is then."""
    copy: str
    is_copied: bool
    """Whether a row that should be there and is not is a mistake: not in a table that changes alone have made."""
    unsent: WalrelayError
    missing: WalrelayError


def steps_for(frames: TableFrames, *, is_copied: bool) -> tuple[Step, ...]:
    """Which of them a batch needs."""
    survey, found = frames.survey, set[Step]()
    is_truncated = survey.truncated_at is not None
    if frames.key:
        if survey.unchanged:
            found.add(Step.REFUSE_UNSENT)
            # What was there before a truncate is no part of what came after it.
            found |= set() if is_truncated else {Step.FILL}
            found |= {Step.REFUSE_MISSING} if is_copied else set()
        # An insert may come again after a restart on another cut, and of one key there is one row.
        found |= {Step.CLEAR} if is_truncated else {Step.TAKE_AWAY}
    elif is_truncated:
        found |= {Step.CLEAR}
    elif survey.olds:
        found |= {Step.KEEP_REST, Step.TAKE_AWAY}
        found |= {Step.REFUSE_MISSING} if is_copied else set()
    found.add(Step.PUT)
    return tuple(step for step in Step if step in found)


def plan_for(
    frames: TableFrames,
    *,
    table: str,
    state: str,
    stage: str,
    since: Lsn,
    copy: str,
    copied: Lsn | None,
    has_added: bool,
) -> Plan:
    schema, lacking = frames.schema, tuple(sorted(frames.survey.unchanged)) if frames.key else ()
    missing: WalrelayError
    if has_added:
        missing = CopyAgainError(f"{schema.name} has columns that came later, and rows in which their value is unknown")
    else:
        missing = MissingRowError(f"rows that changes of {schema.name} change or take away are not there")
    return Plan(
        table=table,
        state=state,
        stage=stage,
        columns=schema.columns,
        key=frames.key,
        lacking=lacking,
        steps=steps_for(frames, is_copied=copied is not None),
        since=since,
        lsn=frames.part.to,
        copy=copy,
        is_copied=copied is not None,
        unsent=unsent_values(schema, [schema.columns[i].name for i in lacking]),
        missing=missing,
    )
