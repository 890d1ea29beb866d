"""Where to cut a long way through the log, so that a destination takes it in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from walrelay.log.manifest import Entry
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId


def cuts(
    log: LogView,
    after: Lsn,
    to: Lsn,
    piece_bytes: int,
    tables: Collection[TableId] | None = None,
    *,
    inside: bool = False,
) -> Iterator[Lsn]:
    """The ends of the pieces, the last one `to`. Each piece has about `piece_bytes` of files of the tables, or less.

    Pieces end with segments. With `inside`, a segment that is larger, because compaction has made it of many, is cut at
    LSNs as far apart as its size suggests: they may lie between two transactions, but tear none.
    """
    size, end = 0, after
    for entry in log.entries(after, to) if to > after else []:
        more = bytes_of(entry, tables)
        if size and size + more > piece_bytes:
            yield end
            size = 0
        start, end = max(entry.start_lsn, after), min(entry.end_lsn, to)
        parts = min(-(-more // piece_bytes), entry.transactions, end - start) if inside else 1
        for part in range(1, parts):
            yield Lsn(start + (end - start) * part // parts)
        size += more // max(parts, 1)
    yield to


def bytes_of(entry: Entry, tables: Collection[TableId] | None) -> int:
    """The size of the entry's files, or of the tables' alone."""
    return sum(file.bytes for file in entry.files if tables is None or file.table in tables)
