"""What several destinations say in the same words."""

from __future__ import annotations

from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.model.notice import Notice


def taken_over(table: TableName, before: str) -> Notice:
    """A table that another pipeline has kept."""
    said = f"{table} was kept current by the pipeline {before}; this one takes it over"
    return Notice("table is taken over from another pipeline", said, table=str(table), before=before)


def not_maintained(table: TableName | str | None, error: WalrelayError) -> Notice:
    """Maintenance failed; nothing is wrong with the table but its size."""
    said = f"{table or 'a table'} could not be maintained, which is tried again later: {error.message}"
    fields = {} if table is None else {"table": str(table)}
    return Notice.warning("table could not be maintained", said, **fields, code=error.code, message=error.message)


def waits_for_holder(what: object, holder: str) -> Notice:
    """Another run has what we need."""
    said = f"waiting for another walrelay run to finish with {what}: {holder}"
    return Notice.warning("waiting for another run", said, what=str(what), holder=holder)
