"""The one error tree: a code, what happened, what to do, and context; it survives pickling and Spark's text.

Messages and context never carry a row value or a secret (SEMANTICS 22): they are printed, logged and sent through
Spark as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

_TEXT_MARK = "walrelay-error:"
_MARKED_JSON = re.compile(re.escape(_TEXT_MARK) + r"(\{.*\})")


class WalrelayError(Exception):
    """Something walrelay can name. `code` is stable, `hint` says what to do, `retryable` whether time may heal it."""

    code: ClassVar[str] = "walrelay"
    default_hint: ClassVar[str] = ""
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, context: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.context: dict[str, Any] = dict(context or {})

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" + (f"\n  hint: {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.code, self.message, self.hint, self.context))

    def to_text(self) -> str:
        """One line from which `from_text` rebuilds the error: exceptions cross from Spark's workers as text only."""
        body = {"code": self.code, "message": self.message, "hint": self.hint, "context": self.context}
        return _TEXT_MARK + json.dumps(body, default=str)


class ConfigError(WalrelayError):
    code = "config.invalid"
    default_hint = "Correct the setting named above; `walrelay replicate --help` lists them all."


class UnknownDestinationError(ConfigError):
    code = "config.unknown_destination"
    default_hint = "Use duckdb:///relative/path.duckdb, duckdb:////absolute/path.duckdb, stdout: or null:."


class MissingExtraError(ConfigError):
    code = "config.missing_extra"


class SourceError(WalrelayError):
    code = "source"


class SourceUnreachableError(SourceError):
    code = "source.unreachable"
    default_hint = "Check host and port, that the server runs, and that a firewall lets you through."
    retryable = True


class AuthenticationError(SourceError):
    code = "source.authentication"
    default_hint = "Check user and password (in the URL, PGPASSWORD or ~/.pgpass) and the server's pg_hba.conf."


class DatabaseMissingError(SourceError):
    code = "source.no_such_database"
    default_hint = "Check the database name at the end of the URL; `psql -l` lists those that exist."


class PublicationMissingError(SourceError):
    code = "source.no_such_publication"


class PublicationEmptyError(SourceError):
    code = "source.empty_publication"


class TableMissingError(SourceError):
    code = "source.no_such_table"
    default_hint = "Check the name (schema.table) and that the table still exists on the source."


class WalLevelError(SourceError):
    code = "source.wal_level"
    default_hint = "Run ALTER SYSTEM SET wal_level = 'logical' and restart the server (managed services: a parameter)."


class RightsError(SourceError):
    code = "source.missing_rights"


class RowSecurityError(RightsError):
    code = "source.row_security"
    default_hint = "Give the role BYPASSRLS, or copy as the table's owner; otherwise rows would silently be missing."


class UnsupportedSourceError(SourceError):
    code = "source.unsupported"


class ConnectionLostError(SourceError):
    code = "source.connection_lost"
    default_hint = "The table is copied again from its start; if it keeps happening look at the server's log."
    retryable = True


class QueryError(SourceError):
    code = "source.query_failed"


class SlotError(SourceError):
    code = "source.slot"


class SlotMissingError(SlotError):
    code = "source.slot_missing"
    default_hint = (
        "Somebody dropped the slot, and with it the changes since. Begin anew: another --log directory, and copy again."
    )


class SlotExistsError(SlotError):
    code = "source.slot_exists"
    default_hint = "Choose another name for the slot."


class SlotInUseError(SlotError):
    code = "source.slot_in_use"
    default_hint = "Stop the other reader of the slot, or choose another name."
    retryable = True


class SlotUnusableError(SlotError):
    code = "source.slot_unusable"


class SlotLostError(SlotError):
    code = "source.slot_lost"
    default_hint = (
        "Drop the slot with SELECT pg_drop_replication_slot('…') and begin anew: another --log directory, and copy"
        " again. To keep it from happening again look at max_slot_wal_keep_size and idle_replication_slot_timeout."
    )


class SlotAheadError(SlotError):
    code = "source.slot_ahead"
    default_hint = (
        "Something else has read this slot, or the log was restored from an older copy. Nothing can bring the changes"
        " between back: drop the slot with SELECT pg_drop_replication_slot('…'), begin with another --log directory,"
        " and copy again."
    )


class LineageError(SourceError):
    code = "source.other_server"


class BadBytesError(WalrelayError):
    """Bytes that are not what the protocol promises, with their `position` in the stream and the `reason`."""

    code = "wire.bad_bytes"
    default_hint = "The stream is damaged or of an unknown kind. Nothing of it was kept; report it with this message."

    def __init__(
        self,
        reason: str,
        *,
        position: int = -1,
        hint: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            f"bad bytes at position {position}: {reason}",
            hint=hint,
            context={"position": position, "reason": reason, **(context or {})},
        )
        self.position = position
        self.reason = reason


class SpecialValueError(WalrelayError):
    code = "value.special"
    default_hint = "Choose special_values 'null' or 'clamp', or correct the value at the source."


class DestinationError(WalrelayError):
    code = "destination"


class CopyAgainError(DestinationError):
    """A destination's table cannot follow by what is in the log alone. The pipeline copies it again."""

    code = "destination.copy_again"
    default_hint = "The pipeline copies the table again by itself."


class DestinationNotWritableError(DestinationError):
    code = "destination.not_writable"
    default_hint = "Check that the directory exists and that you may write there."


class DestinationBusyError(DestinationError):
    code = "destination.busy"
    default_hint = "Close the other program that has the file open, then run again."


class NotDurableError(DestinationError):
    code = "destination.not_durable"
    default_hint = "What it took is sent again, until it says that it is safe."
    retryable = True


class NameClashError(DestinationError):
    code = "destination.name_clash"


class DestinationCorruptError(DestinationError):
    code = "destination.unreadable"
    default_hint = "The file is no database this version can read. Choose another path, or move the file away."


class StagingError(WalrelayError):
    code = "staging"


class DiskFullError(StagingError):
    code = "staging.disk_full"
    default_hint = "Free some space, or put the staging elsewhere with --staging DIR."


class StagingUnwritableError(StagingError):
    code = "staging.not_writable"
    default_hint = "Give a directory that you, and all Spark workers, may write to: --staging DIR."


class SparkError(WalrelayError):
    code = "spark"


class JavaMissingError(SparkError):
    code = "spark.no_jdk"
    default_hint = (
        "Install a JDK 17 or newer: Debian/Ubuntu `apt-get install openjdk-17-jre-headless`, "
        "Fedora `dnf install java-21-openjdk-headless`, macOS `brew install openjdk@21`; or set JAVA_HOME."
    )


class SparkStartError(SparkError):
    code = "spark.no_start"


class SparkJobError(SparkError):
    code = "spark.job_failed"
    default_hint = "Run again with --debug to see Spark's own words."


class SparkLostError(SparkError):
    code = "spark.lost"
    retryable = True
    default_hint = (
        "Its JVM has ended: the machine's memory may have been short, or somebody has killed it. "
        "Start again: it goes on where it was."
    )


class StateMissingError(WalrelayError):
    code = "pipeline.no_state"
    default_hint = "Give the directory that `walrelay replicate --state` uses; by default walrelay-state."


class CaptureDiedError(WalrelayError):
    code = "capture.died"
    default_hint = "Run `walrelay capture` alone with --debug to see more."


class CopyFailedError(WalrelayError):
    """Some tables could not be copied; the others are whole and in place. `summary` tells which."""

    code = "pipeline.copy_failed"
    default_hint = "Correct the cause and run again."
    summary: Any = None


def _all_classes(root: type[WalrelayError]) -> dict[str, type[WalrelayError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_all_classes(child))
    return found


def _rebuild(code: str, message: str, hint: str, context: Mapping[str, Any]) -> WalrelayError:
    kind = _all_classes(WalrelayError).get(code, WalrelayError)
    if kind is BadBytesError:
        rest = {k: v for k, v in context.items() if k not in ("position", "reason")}
        return BadBytesError(context["reason"], position=context["position"], hint=hint, context=rest)
    return kind(message, hint=hint, context=context)


def from_text(text: str) -> WalrelayError | None:
    """The error that `to_text` wrote somewhere in `text` (a Spark stack trace, say), or None."""
    match = _MARKED_JSON.search(text)
    if match is None:
        return None
    try:
        body, _ = json.JSONDecoder().raw_decode(match.group(1))
        return _rebuild(body["code"], body["message"], body["hint"], body["context"])
    except (ValueError, KeyError):
        return None
