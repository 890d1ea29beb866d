"""The one error tree: a code, what happened, what to do, and context; it survives pickling and Spark's text.

Messages and context never carry a row value or a secret (SEMANTICS 22): they are printed, logged and sent through
Spark as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

BEGIN_ANEW = (
    "Run `walrelay replicate` or `walrelay run` again with --begin-anew: it makes a new slot and a new log, and copies"
    " the tables again. `walrelay capture`, which copies nothing, begins with another --slot and another --log."
)
_TEXT_MARK = "walrelay-error:"
_MARKED_JSON = re.compile(re.escape(_TEXT_MARK) + r"(\{.*\})")


class WalrelayError(Exception):
    """Something walrelay can name. `code` is stable, `hint` says what to do, `retryable` whether time may heal it."""

    code: ClassVar[str] = "walrelay"
    default_hint: ClassVar[str] = ""
    retryable: ClassVar[bool] = False
    may_pass: ClassVar[bool] = False
    """Of a table's failure: somebody may remove the cause while the pipeline runs; it is tried again now and then."""
    begins_anew: ClassVar[bool] = False
    """Whether changes are lost for good, with the slot or the log: a new slot, a new log and new copies are the way
    back, which `--begin-anew` takes."""
    copies_again: ClassVar[bool] = False
    """Of a table's failure: what the log has cannot bring it further, also once the cause is gone. Whoever tries it
    again copies it."""

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
    """A setting, an argument or an option is not one that walrelay can work with."""

    code = "config.invalid"
    default_hint = (
        "Correct the setting named above; docs/reference/config.md has them all, `walrelay replicate --help` the usual."
    )


class UnknownDestinationError(ConfigError):
    """The destination's URL is of a kind that this version does not know."""

    code = "config.unknown_destination"
    default_hint = (
        "Use duckdb:///relative/path.duckdb, duckdb:////absolute/path.duckdb, delta:///lake, iceberg:///lake, stdout:"
        " or null:."
    )


class MissingExtraError(ConfigError):
    """A package that is needed here is not installed."""

    code = "config.missing_extra"


class KernelsHomelessError(ConfigError):
    """The decoder is compiled once, and what comes of it cannot be kept anywhere."""

    code = "config.no_place_for_kernels"
    default_hint = "Set NUMBA_CACHE_DIR to a directory that this user may write to."


class SourceError(WalrelayError):
    """Something about the source, the Postgres server."""

    code = "source"
    default_hint = "Run again; with --debug more is shown."


class SourceUnreachableError(SourceError):
    """The source's server does not answer, or has no connection left."""

    code = "source.unreachable"
    default_hint = "Check host and port, that the server runs, and that a firewall lets you through."
    retryable = True


class AuthenticationError(SourceError):
    """The source refused the user or the password."""

    code = "source.authentication"
    may_pass = True
    default_hint = "Check user and password (in the URL, PGPASSWORD or ~/.pgpass) and the server's pg_hba.conf."


class TlsError(SourceError):
    """The encrypted connection could not be made: who talks to whom is not proven, or not offered."""

    code = "source.tls"
    default_hint = "Check sslmode, sslrootcert, sslcert and sslkey in the URL, and the ssl settings of the server."


class TlsUntrustedError(TlsError):
    """The server's certificate is from an authority that is not known here."""

    code = "source.tls_untrusted"
    default_hint = (
        "Add sslrootcert=FILE to the URL: the certificate of the authority that signed the server's (managed services"
        " offer it for download). To encrypt without checking whom you talk to: sslmode=require and no sslrootcert."
    )


class TlsHostNameError(TlsError):
    """The server's certificate is for another name than the URL's."""

    code = "source.tls_host_name"
    default_hint = (
        "Use a name that the certificate has, with hostaddr=ADDRESS in the URL should it not lead there; or, to check"
        " the authority and not the name, sslmode=verify-ca."
    )


class TlsNotOfferedError(TlsError):
    """The URL asks for TLS, and the server has none."""

    code = "source.tls_not_offered"
    default_hint = "Switch TLS on at the server (ssl = on); or, within a network that you trust, use sslmode=disable."


class TlsRequiredError(TlsError):
    """The server takes encrypted connections only."""

    code = "source.tls_required"
    default_hint = "Use sslmode=require, or better verify-full with sslrootcert=FILE."


class TlsClientCertificateError(TlsError):
    """The server wants a certificate of the client's, and got none that it accepts."""

    code = "source.tls_client_certificate"
    default_hint = (
        "Add sslcert=FILE&sslkey=FILE to the URL: a certificate from an authority in the server's ssl_ca_file, whose"
        " common name is the role (or is mapped to it in pg_ident.conf), and its key, with mode 0600."
    )


class DatabaseMissingError(SourceError):
    """The source's server has no database of this name."""

    code = "source.no_such_database"
    may_pass = True
    default_hint = "Check the database name at the end of the URL; `psql -l` lists those that exist."


class PublicationMissingError(SourceError):
    """The database has no publication of this name."""

    code = "source.no_such_publication"


class PublicationEmptyError(SourceError):
    """The publication has no tables, so there is nothing to replicate."""

    code = "source.empty_publication"


class TableMissingError(SourceError):
    """There is no table of this name, or no longer, where it was looked for."""

    code = "source.no_such_table"
    may_pass = True
    default_hint = "Check the name (schema.table) and that the table still exists on the source."


class WalLevelError(SourceError):
    """The server does not write what logical replication needs into its WAL."""

    code = "source.wal_level"
    default_hint = "Run ALTER SYSTEM SET wal_level = 'logical'; and restart the server (managed services: a parameter)."


class RightsError(SourceError):
    """The role lacks a right at the source."""

    code = "source.missing_rights"
    may_pass = True
    default_hint = (
        "`walrelay preflight` prints the statements that give the role what is missing; run them, as a superuser."
    )


class RowSecurityError(RightsError):
    """Row-level security would hide rows of a table from the role."""

    code = "source.row_security"
    default_hint = (
        "Run ALTER ROLE … BYPASSRLS; for the role, or copy as the table's owner; otherwise rows would silently be"
        " missing."
    )


class UnsupportedSourceError(SourceError):
    """The source has something that walrelay cannot replicate: an old version, a foreign table."""

    code = "source.unsupported"


class ConnectionLostError(SourceError):
    """The connection to the source ended or fell silent while it was in use."""

    code = "source.connection_lost"
    default_hint = "The table is copied again from its start; if it keeps happening look at the server's log."
    retryable = True


class LeafIdentityError(SourceError):
    """A partition names changed rows by other columns than the key of the table under whose name they are sent."""

    code = "source.leaf_identity"
    may_pass = True
    copies_again = True


class QueryError(SourceError):
    """The source refused a statement for a reason that has no name of its own here."""

    code = "source.query_failed"
    default_hint = (
        "The message quotes the server; its log has more. Remove the cause there, then run again; or run"
        " `walrelay preflight` to see what else is amiss."
    )


class SlotError(SourceError):
    """Something about the replication slot."""

    code = "source.slot"


class SlotMissingError(SlotError):
    """The replication slot that the log was written through is gone."""

    code = "source.slot_missing"
    begins_anew = True
    default_hint = f"Somebody dropped the slot, and with it the changes since. {BEGIN_ANEW}"


class PublicationYoungerError(SlotError):
    """The publication was made after what the slot has to send: the server cannot decode that with it."""

    code = "source.publication_younger"
    begins_anew = True
    default_hint = (
        "It was dropped and made again, or made after the slot; what was committed before cannot be decoded with it."
        f" {BEGIN_ANEW}"
    )


class SlotExistsError(SlotError):
    """There is a replication slot of this name already."""

    code = "source.slot_exists"
    default_hint = "Choose another name for the slot."


class SlotInUseError(SlotError):
    """Another process reads the replication slot."""

    code = "source.slot_in_use"
    default_hint = "Stop the other reader of the slot, or choose another name."
    retryable = True


class SlotNotOursError(SlotError):
    """A slot that nothing shows to be walrelay's is to be dropped: another program may depend on it."""

    code = "source.slot_not_ours"


class SlotUnusableError(SlotError):
    """The replication slot is of a kind, or of a database, that cannot give the changes."""

    code = "source.slot_unusable"


class SlotLostError(SlotError):
    """The server has removed WAL that the slot needed."""

    code = "source.slot_lost"
    begins_anew = True
    default_hint = (
        f"The server has removed WAL that the slot needed. {BEGIN_ANEW} To keep it from happening again look at"
        " max_slot_wal_keep_size and idle_replication_slot_timeout."
    )


class SlotAheadError(SlotError):
    """The slot was confirmed further than the log goes: the changes between are in neither."""

    code = "source.slot_ahead"
    begins_anew = True
    default_hint = (
        "Something else has read this slot, or the log was restored from an older copy: nothing can bring the changes"
        f" between back. {BEGIN_ANEW}"
    )


class LineageError(SourceError):
    """The log came from another server, another timeline or another slot."""

    code = "source.other_server"
    begins_anew = True
    default_hint = BEGIN_ANEW


class SourceMigrationRightsError(RightsError):
    """The role may not install or remove event triggers on the source."""

    code = "source.migration_rights"
    default_hint = (
        "Event triggers need a superuser, or what a managed service has instead (rds_superuser, cloudsqlsuperuser):"
        " `walrelay migrate-source URL --dry-run` prints the SQL for whoever is one. Everything works without the"
        " trigger, with more copies."
    )


class SourceMigrationSchemaError(SourceError):
    """The schema walrelay on the source belongs to another role."""

    code = "source.migration_schema"
    default_hint = (
        "Its owner could change functions that run with your rights. Take it over with ALTER SCHEMA walrelay OWNER TO"
        " CURRENT_USER; and GRANT USAGE, CREATE ON SCHEMA walrelay to the role that keeps a pipeline's store there."
        " Everything works without the trigger, with more copies."
    )


class SourceMigrationNewerError(SourceError):
    """A newer walrelay has installed the DDL trigger on the source."""

    code = "source.migration_newer"
    default_hint = "Update walrelay here, or uninstall the trigger with the walrelay that installed it."


class SourcePutBackError(LineageError):
    """The server is the log's own, but in a state that is older than what the log holds."""

    code = "source.put_back"
    begins_anew = True
    default_hint = (
        "The server was put back to an older state, from a snapshot of its disk or a backup. What the log and the"
        f" destination hold from after that never happened there. {BEGIN_ANEW}"
    )


class LogAheadError(LineageError):
    """A promoted server left the old timeline before what the log holds."""

    code = "source.log_ahead"
    begins_anew = True
    default_hint = (
        "This server was promoted before it had received all that the log holds; those changes do not exist here."
        f" {BEGIN_ANEW}"
    )


class StandbyBehindError(SourceError):
    """The standby has not replayed as much as the log holds."""

    code = "source.standby_behind"
    default_hint = "It is tried again until the standby has replayed as much as the log holds; nothing was lost."
    retryable = True


class UncertainCutError(SourceError):
    """On a standby: nobody can tell whether a copy holds a transaction that was replayed while it began."""

    code = "source.uncertain_cut"
    default_hint = (
        "The table is copied again by itself. If it keeps happening give the table a primary key, or use the primary as"
        " the source."
    )
    retryable = True


class RecoveryConflictError(SourceError):
    """The standby ended a query of a copy, in order to go on replaying."""

    code = "source.recovery_conflict"
    default_hint = (
        "The table is copied again. Set hot_standby_feedback = on at the standby, or raise max_standby_streaming_delay."
    )
    retryable = True


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
    """A value is one that the destination cannot hold, and the policy is to fail."""

    code = "value.special"
    default_hint = "Choose special_values 'null' or 'clamp', or correct the value at the source."


class SpecialKeyError(SpecialValueError):
    """A special value in a key: treated by policy it would be another key, or none."""

    code = "value.special_key"
    default_hint = (
        "Keys are never treated by policy: change the key's values at the source, or take the table out of the"
        " publication."
    )


class UndecodedChangesError(WalrelayError):
    """Changes of a table are in the log's quarantine: without them the table would be wrong."""

    code = "changes.undecoded"
    default_hint = (
        "`walrelay quarantine list` shows them. `walrelay quarantine retry` has the table copied again at the next"
        " start; `walrelay quarantine drop` goes on without these changes."
    )


class DestinationError(WalrelayError):
    """Something about the destination."""

    code = "destination"
    default_hint = "Nothing is half-written. Run again with --debug to see more, and report it with this message."


class CopyAgainError(DestinationError):
    """A destination's table cannot follow by what is in the log alone. The pipeline copies it again."""

    code = "destination.copy_again"
    default_hint = "The pipeline copies the table again by itself."


class UnsentValueError(DestinationError):
    """A row came without a value that was left out because it had not changed, and that nobody here has ever had."""

    code = "destination.unsent_value"
    copies_again = True


class MissingRowError(DestinationError):
    """A change speaks of a row that the destination, which has a copy of the table, does not have."""

    code = "destination.missing_row"
    default_hint = (
        "`walrelay preflight` names a partition whose REPLICA IDENTITY does not fit, and how to alter it."
        " Then `walrelay resync` copies the table again."
    )
    copies_again = True


class UnnamedRowError(DestinationError):
    """A change does not say which row it means: by no key, or by other columns than the table's."""

    code = "destination.unnamed_row"
    copies_again = True


class DestinationNotWritableError(DestinationError):
    """The destination cannot be written to."""

    code = "destination.not_writable"
    may_pass = True
    default_hint = "Check that the directory exists and that you may write there."


class DestinationBusyError(DestinationError):
    """Another program has the destination, or the staging directory, open."""

    code = "destination.busy"
    may_pass = True
    default_hint = "Close the other program that has the file open, then run again."


class OtherSourceError(DestinationError):
    """The destination's table has rows of another source."""

    code = "destination.other_source"


class OtherPipelineError(DestinationError):
    """Another pipeline keeps the destination's table current."""

    code = "destination.other_pipeline"


class OtherDestinationError(DestinationError):
    """The destination is another one than the one that this pipeline keeps current."""

    code = "destination.other_destination"
    begins_anew = True


class DestinationNewerError(DestinationError):
    """A newer walrelay has written the destination."""

    code = "destination.newer_format"
    default_hint = "Use the version of walrelay that wrote the destination, or a newer one; or choose another place."


class NotDurableError(DestinationError):
    """The destination took something but did not make it durable."""

    code = "destination.not_durable"
    default_hint = "What it took is sent again, until it says that it is safe."
    retryable = True


class NotVerifiableError(DestinationError):
    """The destination cannot be compared with the source."""

    code = "destination.not_verifiable"
    default_hint = "This destination cannot say what it holds; DuckDB can."


class NameClashError(DestinationError):
    """Two names are one to the destination, or a name there is taken by somebody else's table."""

    code = "destination.name_clash"
    may_pass = True


class DestinationCorruptError(DestinationError):
    """The destination's file is no database that can be read."""

    code = "destination.unreadable"
    default_hint = "The file is no database this version can read. Choose another path, or move the file away."


class DestinationUnreachableError(DestinationError):
    """The destination's service does not answer, or not in time."""

    code = "destination.unreachable"
    default_hint = (
        "What was not taken is sent again by itself. Check the network, the address and the service's status."
    )
    retryable = True


class DestinationThrottledError(DestinationError):
    """The destination's service takes no more for now: a quota, a rate, or another transaction on the same table."""

    code = "destination.throttled"
    default_hint = (
        "It is sent again by itself. If it keeps happening write less often (--every), or have quotas raised."
    )
    retryable = True


class DestinationLoginError(DestinationError):
    """The destination's service refused who we say we are."""

    code = "destination.login"
    may_pass = True
    default_hint = (
        "Check the credentials that the destination was given, and that they have not expired. In a URL odd characters"
        " are written as %40 and the like."
    )


class DestinationRightsError(DestinationError):
    """Something may not be done at the destination with these credentials."""

    code = "destination.rights"
    may_pass = True
    default_hint = "The destination's page lists the rights that it needs; have them granted, then run again."


class DestinationPlaceMissingError(DestinationError):
    """The dataset, database, schema or warehouse that the destination names is not there."""

    code = "destination.no_such_place"
    may_pass = True
    default_hint = "Make it, or correct its name in the destination."


class StagingError(WalrelayError):
    """Something about the directory where copies land first."""

    code = "staging"
    default_hint = "Look at the disk; or let copies land elsewhere with --staging DIR."


class DiskFullError(StagingError):
    """The disk is full where copies land first, or where the destination's file is."""

    code = "staging.disk_full"
    may_pass = True
    default_hint = "Free some space, or put the staging elsewhere with --staging DIR."


class StagingUnwritableError(StagingError):
    """The directory where copies land first cannot be written to."""

    code = "staging.not_writable"
    may_pass = True
    default_hint = "Give a directory that you, and all Spark workers, may write to: --staging DIR."


class StoppedError(WalrelayError):
    """Somebody stopped the pipeline before it was through."""

    code = "pipeline.stopped"
    default_hint = "The next run copies the table."


class SparkError(WalrelayError):
    """Something about Spark."""

    code = "spark"


class JavaMissingError(SparkError):
    """Spark needs Java, and there is none, or one that is too old."""

    code = "spark.no_jdk"
    default_hint = (
        "Install a JDK 17 or newer: Debian/Ubuntu `apt-get install openjdk-17-jre-headless`, "
        "Fedora `dnf install java-21-openjdk-headless`, macOS `brew install openjdk@21`; or set JAVA_HOME."
    )


class SparkStartError(SparkError):
    """Spark did not start."""

    code = "spark.no_start"


class SparkJobError(SparkError):
    """Spark failed with something that is no failure of walrelay's own."""

    code = "spark.job_failed"
    default_hint = "Run again with --debug to see Spark's own words."


class SparkLostError(SparkError):
    """Spark's JVM ended while it was in use."""

    code = "spark.lost"
    retryable = True
    default_hint = (
        "Its JVM has ended: the machine's memory may have been short, or somebody has killed it. "
        "Start again: it goes on where it was."
    )


class StateMissingError(WalrelayError):
    """The directory holds no pipeline's state."""

    code = "pipeline.no_state"
    default_hint = "Give the directory that `walrelay replicate --state` uses; by default walrelay-state."


class KeptCurrentError(WalrelayError):
    """A copy without changes was asked for, with the state of a pipeline that keeps its tables current."""

    code = "pipeline.kept_current"
    default_hint = "Run that pipeline in its own mode; or copy with a state, or an id, of its own."


class PausedError(WalrelayError):
    """The pipeline is paused, so it cannot catch up."""

    code = "pipeline.paused"
    default_hint = "`walrelay resume --state DIR` ends the pause; what has come meanwhile is in the log and follows."


class UnknownTableError(WalrelayError):
    """The pipeline has no table of this name."""

    code = "pipeline.no_such_table"


class PhaseOrderError(WalrelayError):
    """A table was to go from one phase to another that may not follow it: a mistake of walrelay's own."""

    code = "pipeline.phase_order"
    default_hint = "Nothing was written. Report it with this message; `walrelay resync` begins the table anew."


class ReaderInUseError(WalrelayError):
    """The reader that is to be forgotten still reads the log."""

    code = "pipeline.reader_in_use"
    default_hint = "Stop the pipeline first."


class ReaderMissingError(WalrelayError):
    """The log has no reader of this name."""

    code = "pipeline.no_such_reader"


class CaptureDiedError(WalrelayError):
    """The process that captures changes ended without saying why."""

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


def rebuilt(code: str, message: str, hint: str | None) -> WalrelayError:
    """An error that a store has kept."""
    kind = _all_classes(WalrelayError).get(code, WalrelayError)
    error = kind.__new__(kind)
    WalrelayError.__init__(error, message, hint=hint or "")  # some make their message themselves
    return error


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
