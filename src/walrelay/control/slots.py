"""The replication slots of a source: which there are, what they cost, and dropping those that nobody needs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from walrelay.control.stores import log_of
from walrelay.errors import SlotMissingError, SlotNotOursError
from walrelay.log.failures import LogNotFoundError
from walrelay.log.identity import read_lineage
from walrelay.log.storage import open_storage
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import OWN_PREFIX, Slot, all_slots, drop_slot, in_use
from walrelay.postgres.source import PostgresSource


@dataclass(frozen=True, slots=True)
class SlotLine:
    """A slot, as a person who wants to tidy up sees it."""

    name: str
    kind: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    application: str | None
    """What its reader calls itself."""
    client: str | None
    confirmed_lsn: str | None
    retained_bytes: int
    """WAL that the server keeps for it."""
    wal_status: str | None
    invalidation: str | None
    ours: bool
    """Whether it is walrelay's, as far as its name or its reader shows."""


@dataclass(frozen=True, slots=True)
class DroppedSlot:
    """A slot that is gone, and how much WAL it kept."""

    name: str
    retained_bytes: int


def list_slots(source: PostgresSource) -> list[SlotLine]:
    """All slots of the server, also those of other databases and programs: each keeps WAL."""
    with closing(connect(source, application="walrelay slots")) as connection:
        return [_line(slot) for slot in all_slots(connection)]


def slot_in(state: Path) -> str:
    """The slot of the pipeline whose state is there."""
    lineage = read_lineage(open_storage(log_of(state)))
    if lineage is None:
        raise LogNotFoundError(
            f"there is no change log in {state}, which would name the slot",
            hint="`walrelay slots list SOURCE` shows the slots; give the name of the one to drop.",
        )
    return lineage.slot


def drop_slots(source: PostgresSource, names: Sequence[str], *, force: bool = False) -> list[DroppedSlot]:
    """Drop these slots. Nothing is dropped when one of them is missing, in use or, without `force`, not walrelay's."""
    with closing(connect(source, application="walrelay slots")) as connection:
        found = {slot.name: slot for slot in all_slots(connection)}
        wanted = [_droppable(found.get(name), name, source, force=force) for name in dict.fromkeys(names)]
        dropped = []
        for slot in wanted:
            drop_slot(connection, slot.name)
            dropped.append(DroppedSlot(slot.name, slot.retained_bytes))
    return dropped


def is_ours(slot: Slot) -> bool:
    """By its name, or by who reads it. A slot with a name that somebody chose is known only while it is read."""
    named = slot.name.startswith(OWN_PREFIX)
    read = (slot.active_application or "").startswith("walrelay")
    return slot.kind == "logical" and slot.plugin == "pgoutput" and (named or read)


def _droppable(slot: Slot | None, name: str, source: PostgresSource, *, force: bool) -> Slot:
    if slot is None:
        raise SlotMissingError(
            f"{source.location} has no replication slot {name}", hint="`walrelay slots list SOURCE` shows those it has."
        )
    if slot.active_pid is not None:
        raise in_use(slot)
    if not force and not is_ours(slot):
        plugin = f", plugin {slot.plugin}" if slot.plugin else ""
        raise SlotNotOursError(
            f"nothing shows that the slot {name} is walrelay's ({slot.kind}{plugin}): another program may need it",
            hint="If you gave a pipeline this name with --slot, or know that nobody needs it: add --force.",
            context={"slot": name},
        )
    return slot


def _line(slot: Slot) -> SlotLine:
    return SlotLine(
        name=slot.name,
        kind=slot.kind,
        plugin=slot.plugin,
        database=slot.database,
        active_pid=slot.active_pid,
        application=slot.active_application,
        client=slot.active_client,
        confirmed_lsn=None if slot.confirmed_lsn is None else str(slot.confirmed_lsn),
        retained_bytes=slot.retained_bytes,
        wal_status=slot.wal_status,
        invalidation=slot.invalidation,
        ours=is_ours(slot),
    )
