"""Which pipeline keeps a table current, and that no other one writes to it."""

from __future__ import annotations

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.notices import taken_over
from walrelay.errors import OtherPipelineError
from walrelay.model.names import TableId, TableName
from walrelay.stores.names import plain_name


def begins_anew(keeper: str, context: DestinationContext) -> bool:
    """Whether this pipeline is the keeper, come again under its id with a state of its own that is empty."""
    return context.mode == "both" and plain_name(keeper) == context.pipeline_id


def refuse_stranger(
    table: TableId, name: TableName, keeper: str, context: DestinationContext, *, copying: bool, place: str, kind: str
) -> None:
    """Raise when another pipeline keeps the table current; `keeper` is empty when none does. One that begins anew takes
    over the tables that it copies. The table is in `place`, which is a `kind`: a database, a directory."""
    if not keeper or keeper == context.pipeline_name:
        return
    if copying and begins_anew(keeper, context):
        context.notify(taken_over(name, keeper))
        return
    raise OtherPipelineError(
        f"{name} in {place} is kept current by the pipeline {keeper}; this is {_who(context)}",
        hint=f"Run that pipeline, or choose another {kind}; or take its tables over with --id"
        f" {plain_name(keeper)} and a --state directory that is empty.",
        context={"table": str(name), "table_id": table},
    )


def kept_by(
    keeper: str | None, name: TableName, context: DestinationContext, *, place: str, elsewhere: str
) -> OtherPipelineError:
    """The refusal where people can drop the table themselves. Without a keeper it is one of an earlier version, which
    did not write down its name."""
    who = "a pipeline of an earlier version" if keeper is None else f"the pipeline {keeper}"
    hint = f"Run that pipeline, or choose {elsewhere}; if it is gone for good: DROP TABLE {name}; there"
    if keeper is not None and begins_anew(keeper, context):
        hint = (
            "Another --state directory has this pipeline now: go on with that one; or begin anew, with a --state"
            " directory that is empty"
        )
    elif keeper is not None and context.mode == "both":
        hint = f"{hint}, or take its tables over with --id {plain_name(keeper)}"
    return OtherPipelineError(
        f"{name} in {place} is kept current by {who}; this is {_who(context)}",
        hint=f"{hint}.",
        context={"table": str(name)},
    )


def _who(context: DestinationContext) -> str:
    return f"the pipeline {context.pipeline_name}" if context.pipeline_name else "a copy without changes"
