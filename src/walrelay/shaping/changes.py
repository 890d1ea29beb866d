"""Changes of a table as the log has them → changes of the table that the destination keeps, in the log's own form."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.refusals import unsent_values
from walrelay.log.reader import reading_schema
from walrelay.shaping.failures import KeptRowsTruncatedError
from walrelay.shaping.plan import COMMITTED_AT, DELETED, DELETED_AT, LSN, OPERATION, ORDINAL, Plan
from walrelay.shaping.rows import shaped_image

WORD = pa.string()


def shaped_changes(plan: Plan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The changes, with columns as `reading_schema` has them for the source's shape, and gives for the destination's.
    Positions stay, so that whoever asks for a range finds the same ones in it."""
    if plan.made:
        _refuse_truncates(plan, batch)
    if plan.soft_deletes:
        return _marking_deleted(plan, batch)
    if plan.history:
        return _each_a_row(plan, batch)
    return _with(
        plan,
        batch,
        row=shaped_image(plan, batch.column("row")),
        old=shaped_image(plan, batch.column("old")),
        unchanged=_unchanged(plan, batch.column("unchanged")),
    )


def _with(plan: Plan, batch: pa.RecordBatch, **given: pa.Array) -> pa.RecordBatch:
    schema = reading_schema(plan.shaped)
    return pa.RecordBatch.from_arrays([given.get(f.name, batch.column(f.name)) for f in schema], schema=schema)


def _unchanged(plan: Plan, listed: pa.ListArray) -> pa.ListArray:
    """Under the names that the columns get; without those that do not arrive, or hold NULL whatever is sent."""
    if listed.null_count == len(listed):
        return listed
    kept = [one for one in plan.columns if one.needs_values]
    before = pa.array([one.source.name for one in kept], pa.string())
    after = pa.array([one.column.name for one in kept], pa.string())
    flat, parents = listed.flatten(), pc.list_parent_indices(listed)
    found = pc.index_in(flat, before)
    is_kept = found.is_valid()
    names, parents = after.take(found.filter(is_kept)), parents.filter(is_kept)
    return _lists(names, parents, len(listed))


def _lists(names: pa.Array, parents: pa.Array, count: int) -> pa.ListArray:
    """Names by the row that they belong to; NULL for a row that has none."""
    sizes = pc.value_counts(parents)
    counts = pa.nulls(count, pa.int32()).fill_null(0)
    if len(sizes):
        places = pc.index_in(_places(count).cast(parents.type), sizes.field("values"))
        counts = sizes.field("counts").take(places).fill_null(0).cast(pa.int32())
    ends = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, names, mask=pc.equal(counts, 0))


def _places(count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int64))


def _refuse_truncates(plan: Plan, batch: pa.RecordBatch) -> None:
    if pc.any(pc.equal(batch.column("op"), "truncate")).as_py():
        name = plan.source.name
        what = "soft_deletes" if plan.soft_deletes else "history"
        raise KeptRowsTruncatedError(
            f"{name} was truncated, and {what} keeps rows that the source has no more",
            context={"table": str(name), "table_id": plan.source.id},
        )


# ------------------------------------------------------------------------------------------------------- soft deletes


def _marking_deleted(plan: Plan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A delete becomes an update that says of the row no more than that it is deleted."""
    op, old_kind = batch.column("op"), batch.column("old_kind")
    is_delete = pc.equal(op, "delete")
    made = {
        DELETED.name: is_delete,
        DELETED_AT.name: pc.if_else(is_delete, batch.column("commit_time"), None),
    }
    row = _chosen(is_delete, batch.column("old"), batch.column("row"))
    keys = {one.source.name for one in plan.columns} & set(plan.source.key_columns)
    rest = [one.column.name for one in plan.columns if one.source.name not in keys and one.needs_values]
    lacks = pc.and_(is_delete, pc.fill_null(pc.not_equal(old_kind, "row"), True))
    unchanged = _unchanged(plan, batch.column("unchanged"))
    if rest:
        unchanged = _either(lacks, rest, unchanged)
    old = shaped_image(plan, batch.column("old"))
    return _with(
        plan,
        batch,
        op=pc.if_else(is_delete, "update", op),
        row=shaped_image(plan, row, made),
        old=_masked(old, is_delete),
        old_kind=pc.if_else(is_delete, pa.scalar(None, WORD), old_kind),
        unchanged=unchanged,
    )


def _chosen(mask: pa.Array, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Row by row one or the other; of structs too, which `if_else` takes only without NULLs inside."""
    count = len(mask)
    both = pa.concat_arrays([yes, no])
    here = _places(count)
    return both.take(pc.if_else(mask, here, pc.add(here, count)))


def _masked(array: pa.Array, mask: pa.Array) -> pa.Array:
    """NULL where the mask says so."""
    here = _places(len(mask))
    return array.take(pc.if_else(mask, pa.scalar(None, pa.int64()), here))


def _either(mask: pa.Array, names: list[str], lists: pa.ListArray) -> pa.ListArray:
    """The names where the mask says so, else what is there."""
    one = pa.array([names], pa.list_(pa.string()))
    both = pa.concat_arrays([one, lists.cast(one.type)])
    here = pc.add(_places(len(mask)), 1)
    return both.take(pc.if_else(mask, pa.scalar(0, pa.int64()), here))


# ------------------------------------------------------------------------------------------------------------- history


def _each_a_row(plan: Plan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every change becomes an insert of a row that says what has happened; an update that changes the key is a delete
    under the old one, too."""
    op = batch.column("op")
    is_delete = pc.equal(op, "delete")
    row = _chosen(is_delete, batch.column("old"), _whole_rows(plan, batch))
    made = _said(batch, op)
    changed = _inserts(plan, batch, shaped_image(plan, row, made))
    moved = _moved(plan, batch)
    if not pc.any(moved).as_py():
        return changed
    those = batch.filter(moved)
    left = shaped_image(plan, those.column("old"), _said(those, pa.repeat("delete", those.num_rows)))
    gone = _inserts(plan, those, left)
    both = pa.Table.from_batches([gone, changed]).sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")])
    return both.combine_chunks().to_batches()[0]


def _said(batch: pa.RecordBatch, operation: pa.Array) -> dict[str, pa.Array]:
    return {
        OPERATION.name: operation.cast(WORD),
        LSN.name: batch.column("commit_lsn"),
        ORDINAL.name: batch.column("ordinal"),
        COMMITTED_AT.name: batch.column("commit_time"),
    }


def _inserts(plan: Plan, batch: pa.RecordBatch, row: pa.StructArray) -> pa.RecordBatch:
    schema, count = reading_schema(plan.shaped), batch.num_rows
    nothing = {name: pa.nulls(count, schema.field(name).type) for name in ("old", "old_kind", "unchanged")}
    return _with(plan, batch, op=pa.repeat("insert", count), row=row, **nothing)


def _whole_rows(plan: Plan, batch: pa.RecordBatch) -> pa.StructArray:
    """With values that were not sent again taken from the old row. Where that does not have them nobody does: a history
    has no earlier row that would be altered."""
    row, listed = batch.column("row"), batch.column("unchanged")
    arriving = {one.source.name for one in plan.columns if one.needs_values}
    if listed.null_count == len(listed):
        return row
    flat, parents = listed.flatten(), pc.list_parent_indices(listed)
    named = [name for name in pc.unique(flat).to_pylist() if name in arriving]
    if not named:
        return row
    has_old = pc.fill_null(pc.equal(batch.column("old_kind"), "row"), False)
    parts, olds = list(row.flatten()), batch.column("old").flatten()
    here = _places(batch.num_rows).cast(parents.type)
    for place, column in enumerate(plan.source.columns):
        if column.name in named:
            lacks = pc.is_in(here, value_set=parents.filter(pc.equal(flat, column.name)))
            if pc.any(pc.and_(lacks, pc.invert(has_old))).as_py():
                error = unsent_values(plan.source, [column.name])
                error.context |= {"table": str(plan.source.name), "table_id": plan.source.id}
                raise error
            parts[place] = _chosen(lacks, olds[place], parts[place])
    return pa.StructArray.from_arrays(parts, fields=list(row.type), mask=row.is_null())


def _moved(plan: Plan, batch: pa.RecordBatch) -> pa.Array:
    """Which updates give a row another key."""
    is_update = pc.and_(pc.equal(batch.column("op"), "update"), batch.column("old_kind").is_valid())
    names = [column.name for column in plan.source.columns]
    rows, olds = batch.column("row").flatten(), batch.column("old").flatten()
    differs = [
        pc.fill_null(pc.not_equal(rows[names.index(name)], olds[names.index(name)]), False)
        for name in plan.source.key_columns
    ]
    return pc.and_(is_update, reduce(pc.or_, differs)) if differs else pa.repeat(False, batch.num_rows)
