"""Checks of the server and of the role's standing there. Each looks at the facts and yields what it finds."""

from __future__ import annotations

from collections.abc import Iterator

from walrelay.control.preflight_facts import MANAGED_SETTINGS, Facts
from walrelay.control.preflight_report import Finding, note, passed, problem, warning
from walrelay.errors import WalLevelError
from walrelay.postgres.slot_wait import listed
from walrelay.postgres.source_migrations import VERSION

NEWEST_MAJOR = 18
STANDBY_DECODES_FROM = 16
# A busy server writes this much WAL within minutes, so a short stop would already cost the slot.
LITTLE_WAL_MB = 1024


def connection(facts: Facts) -> Iterator[Finding]:
    yield passed("connection", f"{facts.location} as {facts.server.role}")


def server_version(facts: Facts) -> Iterator[Finding]:
    """Too old a server never comes so far: its catalog was not read."""
    said = f"Postgres {facts.server.version_text}"
    if facts.server.version // 10_000 > NEWEST_MAJOR:
        newer = f"{said} is newer than {NEWEST_MAJOR}, the newest that was tested"
        yield warning("server_version", newer, "Look for a newer walrelay; report what does not work.")
    else:
        yield passed("server_version", said)


def pooler(facts: Facts) -> Iterator[Finding]:
    """A server greets with the id of the process that serves us; a pooler, which changes it, invents one."""
    if facts.server.backend_pid == facts.server.greeted_pid:
        yield passed("pooler", "a direct connection")
        return
    yield warning(
        "pooler",
        "a connection pooler seems to stand between; replication and shared snapshots need the server itself",
        "Give the server's own host and port: often 5432 where PgBouncer has 6432; hosted: the direct one.",
    )


def standby_when_copying(facts: Facts) -> Iterator[Finding]:
    if facts.server.is_standby and not facts.server.standby_feedback:
        yield note(
            "standby",
            "the server is a standby, which may cancel a long copy for the sake of its replay",
            "If that happens set hot_standby_feedback = on there, or raise max_standby_streaming_delay.",
        )
    else:
        yield passed("standby", "the server is a standby" if facts.server.is_standby else "the server is a primary")


def standby_when_streaming(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if not server.is_standby:
        yield passed("standby", "the server is a primary")
    elif server.version < STANDBY_DECODES_FROM * 10_000:
        yield problem(
            "standby",
            f"the server is a standby, and gives its changes only from Postgres {STANDBY_DECODES_FROM} on",
            "Give the primary's address.",
        )
    elif not server.standby_feedback:
        yield warning(
            "standby",
            "a standby without hot_standby_feedback: the primary may remove rows that the slot needs",
            "Set hot_standby_feedback = on there, and have it follow the primary through a physical slot.",
        )
    else:
        yield note("standby", "the server is a standby; tables without a primary key need the primary")


def wal_level_when_copying(facts: Facts) -> Iterator[Finding]:
    if facts.server.wal_level == "logical":
        yield passed("wal_level", "logical")
    else:
        yield note("wal_level", f"{facts.server.wal_level}: enough to copy, but changes need logical", _raise(facts))


def wal_level_when_streaming(facts: Facts) -> Iterator[Finding]:
    if facts.server.wal_level == "logical":
        yield passed("wal_level", "logical")
    else:
        yield problem("wal_level", f"{facts.server.wal_level}: changes need logical", _raise(facts))


def _raise(facts: Facts) -> str:
    """How wal_level is raised here."""
    managed = (MANAGED_SETTINGS[name] for name in facts.server.managed_settings)
    return next(managed, WalLevelError.default_hint)


def replication_slots(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if server.used_slots < server.max_slots:
        yield passed("replication_slots", f"{server.max_slots - server.used_slots} of {server.max_slots} free")
        return
    remedy = f"Run ALTER SYSTEM SET max_replication_slots = {server.used_slots + 4} and restart the server"
    if server.idle_slots:
        remedy += f"; or pg_drop_replication_slot() one that nobody needs. Idle: {', '.join(server.idle_slots)}"
    yield problem("replication_slots", f"all {server.max_slots} are taken", f"{remedy}.")


def open_transactions(facts: Facts) -> Iterator[Finding]:
    """What is open now may be over when the slot is made; what was forgotten will not be."""
    found = facts.open_transactions
    if not found:
        yield passed("open_transactions", "none that would hold up a new slot")
        return
    remedy = "If they were forgotten: " + " ".join(one.remedy for one in found)
    yield warning("open_transactions", f"a new slot must wait for the end of {listed(found)}", remedy)


def wal_senders(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if server.used_senders < server.max_senders:
        yield passed("wal_senders", f"{server.max_senders - server.used_senders} of {server.max_senders} free")
        return
    remedy = f"Run ALTER SYSTEM SET max_wal_senders = {server.used_senders + 4} and restart the server."
    yield problem("wal_senders", f"all {server.max_senders} are taken", remedy)


def replication_right(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if server.may_replicate:
        yield passed("replication_right", f"{server.role} may replicate")
        return
    membership = f"GRANT {server.replication_role} TO {server.role};"
    remedy = membership if server.replication_role else f"ALTER ROLE {server.role} REPLICATION;"
    yield problem("replication_right", f"{server.role} may not replicate", remedy)


def slot_wal_keep_size(facts: Facts) -> Iterator[Finding]:
    kept = facts.server.slot_wal_keep_mb
    check = "max_slot_wal_keep_size"
    if kept < 0:
        yield note(
            check,
            "unlimited: while the pipeline stands still, WAL gathers until the server's disk is full",
            "Consider a limit the disk can bear, such as ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'.",
        )
    elif kept < LITTLE_WAL_MB:
        yield warning(
            check,
            f"{kept} MB: a pipeline that falls further behind loses its slot and must copy everything again",
            "Raise it to what the disk can bear, such as ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'.",
        )
    else:
        yield passed(check, f"{kept} MB")


def idle_slot_timeout(facts: Facts) -> Iterator[Finding]:
    """Nothing to say before Postgres 18, which brought the setting."""
    timeout = facts.server.idle_slot_timeout
    if timeout is None:
        return
    if timeout == "0":
        yield passed("idle_replication_slot_timeout", "off")
    else:
        yield warning(
            "idle_replication_slot_timeout",
            f"{timeout}: a pipeline that stands still longer loses its slot and must copy everything again",
            "Run ALTER SYSTEM SET idle_replication_slot_timeout = 0, then SELECT pg_reload_conf().",
        )


def ddl_trigger(facts: Facts) -> Iterator[Finding]:
    """Which of two ways a pipeline will know what a table looks like. Both are sound, so no problem is ever found."""
    state = facts.ddl_trigger
    otherwise = "altered tables are followed by catalog and fingerprint, and copied again where these leave doubt"
    if state.version is None:
        yield passed("ddl_trigger", f"none: {otherwise} (`walrelay migrate-source` installs one)")
    elif not state.enabled:
        said = f"version {state.version} is installed but disabled or incomplete: {otherwise}"
        yield note("ddl_trigger", said, "Run `walrelay migrate-source` again, or with --uninstall.")
    elif state.version < VERSION:
        said = f"version {state.version} is installed, {VERSION} is current: {otherwise}"
        yield note("ddl_trigger", said, "Run `walrelay migrate-source`, which upgrades it.")
    elif state.version > VERSION:
        said = f"version {state.version} is installed, this walrelay knows {VERSION}: {otherwise}"
        yield note("ddl_trigger", said, "Update walrelay here.")
    else:
        yield passed("ddl_trigger", f"version {state.version}: altered tables are followed exactly")
