"""Whether server, slot and log belong together: before anything is read, and before anything is written."""

from __future__ import annotations

from collections.abc import Callable

from walrelay.capture.same_server import accept_timeline, check_not_put_back, read_held
from walrelay.capture.stream import Course
from walrelay.capture.tail import check_last, remember_publication, sent_again
from walrelay.errors import BEGIN_ANEW, LineageError, SlotMissingError
from walrelay.failpoints import hit
from walrelay.log.identity import claim, read_lineage
from walrelay.log.manifest import Manifest
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.notice import Notice
from walrelay.model.sizes import size
from walrelay.postgres.catalog import publication_mark
from walrelay.postgres.connection import Connection
from walrelay.postgres.replication import ReplicationConnection, SystemIdentity
from walrelay.postgres.slot import (
    OWN_PREFIX,
    Slot,
    all_slots,
    check_position,
    check_usable,
    create_slot,
    find_slot,
    in_use,
    wait_until_free,
)
from walrelay.postgres.slot_wait import naming_what_is_waited_for


def admitted_lineage(
    course: Course,
    catalog: Connection,
    replication: ReplicationConnection,
    manifest: Manifest,
    notify: Callable[[str], None],
) -> Lineage:
    """The log's lineage, made with a new slot when the log is new. Refuses another server than the log's."""
    system = replication.identify()
    lineage = read_lineage(course.storage)
    if lineage is None:
        slot = find_slot(catalog, course.slot)
        if slot is None:
            _tell_of_unread_slots(catalog, system.database, notify)
            hit("slot.before_create")
            notify(
                Notice(
                    "creating the replication slot", f"creating the replication slot {course.slot}", slot=course.slot
                )
            )
            with naming_what_is_waited_for(
                course.source, catalog.info.backend_pid, f"the replication slot {course.slot}", notify
            ):
                slot = create_slot(catalog, course.slot, failover=course.settings.failover)
            hit("slot.after_create")
        check_usable(slot, system.database)
        if slot.confirmed_lsn is None:
            raise in_use(slot)  # it is being made: the server goes on when the client that asked for it has died
        lineage = Lineage(course.slot, system.system_identifier, system.timeline, slot.confirmed_lsn)
        claim(course.storage, lineage)
    if lineage.slot != course.slot:
        raise LineageError(
            f"the log belongs to the slot {lineage.slot}, not to {course.slot}",
            hint=f"Use --slot {lineage.slot}, or another --log directory.",
        )
    if lineage.system_identifier != system.system_identifier:
        raise LineageError(
            f"the log came from the server {lineage.system_identifier}; this is {system.system_identifier}",
            hint=f"Connect to the server the log came from. Where that is gone: {BEGIN_ANEW}",
        )
    if lineage.timeline != system.timeline:
        if course.settings.accept_timeline != system.timeline:
            raise LineageError(
                f"the server is on timeline {system.timeline} now; the log came from timeline {lineage.timeline}",
                hint="After a promotion go on only if the slot was synchronised to this server: then run again with"
                f" --accept-timeline {system.timeline}. Else: {BEGIN_ANEW}",
            )
        held = read_held(course.storage, manifest, lineage)
        lineage = accept_timeline(course.storage, replication, lineage, held, system.timeline)
    check_not_put_back(catalog, read_held(course.storage, manifest, lineage))
    return lineage


def _tell_of_unread_slots(catalog: Connection, database: str, notify: Callable[[str], None]) -> None:
    """A pipeline whose state was deleted leaves its slot behind, which keeps WAL until the disk is full."""
    for slot in all_slots(catalog):
        if slot.name.startswith(OWN_PREFIX) and slot.database == database and slot.active_pid is None:
            said = (
                f"nobody reads the replication slot {slot.name}, which keeps {size(slot.retained_bytes)} of WAL; if its"
                f" pipeline is gone for good: walrelay slots drop SOURCE {slot.name}"
            )
            notify(
                Notice.warning(
                    "nobody reads a replication slot", said, slot=slot.name, retained_bytes=slot.retained_bytes
                )
            )


def check_slot(slot: Slot | None, name: str, system: SystemIdentity, held: Lsn) -> None:
    """Refuse a slot that cannot bring what comes after `held`."""
    if slot is None:
        raise SlotMissingError(f"the replication slot {name} is gone")
    check_usable(slot, system.database)
    if slot.active_pid is not None:
        raise in_use(slot)
    check_position(slot, held)


def is_last_there(course: Course, catalog: Connection, replication: ReplicationConnection, manifest: Manifest) -> bool:
    """Refuse a server that was put back and has gone on since, as far as it can be told; False when stopped."""
    slot = find_slot(catalog, course.slot)
    mark = publication_mark(catalog, course.source.publication)
    last = sent_again(course.storage, manifest, slot, mark) if slot is not None else None
    if slot is not None and last is not None:
        if not check_last(replication, slot, course.source.publication, last, course.stopping):
            return False
        replication.reopen()
        wait_until_free(catalog, course.slot)
    remember_publication(course.storage, mark)
    return True
