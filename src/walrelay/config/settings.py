"""Everything a user may set about copying and capturing, with the default and why it is that."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PositiveInt, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from walrelay.config.choices import Ack, OnBadChanges, OnSilentChange, UnknownTypes
from walrelay.errors import ConfigError
from walrelay.model.special import SpecialValues

MiB = 1024 * 1024
SLOT_TIMEOUT = timedelta(seconds=90)


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_SIZE = re.compile(r"\s*(\d+)\s*(B|[kKMGT]i?B)\s*")


def _seconds(value: object) -> object:
    """A bare number, also as the text that the environment gives, is seconds; else as people write it: 10s, 5m, 7d."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    try:
        return timedelta(seconds=float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return value


def duration(name: str, value: str) -> timedelta:
    """A time as people write it, e.g. in a URL; one that is none raises `ConfigError` naming it."""
    made = _seconds(value)
    if not isinstance(made, timedelta) or made < timedelta(0):
        raise ConfigError(f"{name} is no length of time: {value}", hint="Write 30s, 10m or 1h.")
    return made


def _bytes(value: object) -> object:
    """A bare number is bytes; else as people write it: 64MiB, 1GB."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        unit = match[2]
        power = "BKMGT".index(unit[0].upper())
        return int(match[1]) * (1024 if unit.endswith("iB") else 1000) ** power
    return value


def null_by_name(value: object) -> object:
    """Where `null` is a word to choose, and a YAML file says nothing by it."""
    return "null" if value is None else value


Seconds = Annotated[timedelta, BeforeValidator(_seconds, json_schema_input_type=float | str)]
Bytes = Annotated[PositiveInt, BeforeValidator(_bytes, json_schema_input_type=int | str)]
SpecialValuesWord = Annotated[SpecialValues, BeforeValidator(null_by_name, json_schema_input_type=SpecialValues | None)]
S = TypeVar("S", bound=BaseSettings)


class Settings(BaseSettings):
    """What every group of settings has in common: strict, frozen, and explained by the text below each."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        return not_a_truth(cls, value, info)


def not_a_truth(kind: type[BaseModel], value: object, info: ValidationInfo) -> object:
    """The value, unless it is true or false and the field has no use for that: for Python these are 1 and 0."""
    field = kind.model_fields.get(info.field_name or "")
    if isinstance(value, bool) and field is not None and "bool" not in str(field.annotation):
        raise ValueError("true or false says nothing here")
    return value


class CopySettings(Settings):
    """How tables are copied. Each can be given in code, or as an environment variable `WALRELAY_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_")

    special_values: SpecialValuesWord = "null"
    """What becomes of values the destination's type cannot hold; they are counted in the summary."""

    unknown_types: UnknownTypes = "bytes"
    """How a type without a decoder arrives: Postgres's own binary form, or its text."""

    on_silent_change: OnSilentChange = "copy"
    """What to do about a table whose rows were changed, or whose changes were not sent, without a message that tells:
    an enum value renamed, a partition dropped, a row filter changed. A copy is always right; `warn` and `ignore` leave
    the older rows as they are."""

    on_bad_changes: OnBadChanges = "copy"
    """What becomes of a table some of whose changes could not be decoded (they are in the log's quarantine): a new
    copy, which is right again without anybody's help, or an error that waits for a person. In mode `changes`, where
    nothing is copied, it is an error."""

    max_tables: PositiveInt = 4
    """Tables read at the same time, each with one connection of its own for the snapshot; as many more may meanwhile be
    loaded into the destination."""

    range_bytes: Bytes = Field(256 * MiB, ge=1 * MiB)
    """How much of a table, with its TOAST, one Spark task reads. Large enough that the tenth of a second which Spark
    takes between two tasks does not count, small enough that all cores end at about the same time."""

    max_ranges: PositiveInt = 1024
    """At most so many tasks a table; ranges grow beyond `range_bytes` when a table is that large."""

    chunk_bytes: Bytes = Field(2 * MiB, ge=64 * 1024)
    """Received bytes decoded at once: a task's memory is a few times this, or a few times its largest row."""

    file_bytes: Bytes = Field(256 * MiB, ge=1 * MiB)
    """Size at which a task starts its next Parquet file."""

    staging: Path | None = None
    """Where copies land before the destination takes them; must be reachable from all Spark workers. Default: beside
    a file destination, else a temporary directory."""

    retries: int = Field(5, ge=0)
    """How often a table's copy starts again after a lost connection."""

    retry_delay: Seconds = timedelta(seconds=1)
    """Wait before the first retry; doubles each time, up to a minute."""

    late_retry_delay: Seconds = timedelta(minutes=1)
    """Between two looks whether the cause of a table's failure is gone, when only somebody else can remove it: a right
    that is missing, a full disk. Often enough that nobody has to restart, and seldom enough that nobody notices."""

    stall_timeout: Seconds = Field(timedelta(seconds=30), gt=timedelta(0))
    """How long nothing may come from the source before it is asked, on another connection, what it does. One that works
    or waits for a lock is waited for; one that waits for us has been sent nothing we got, and the table starts again.
    Longer than the pauses of a busy server and a short failure of a network, shorter than anyone's patience."""

    every: Seconds | None = Field(None, ge=timedelta(0))
    """How often changes are taken into the destination. Default: the destination's own, which for one that is read by
    others while it is written is as often as it can be, and for a lake, where every batch makes files, 10 seconds."""

    busy_timeout: Seconds = timedelta(seconds=60)
    """How long to wait for a destination that another program holds."""


class CaptureSettings(Settings):
    """How changes are captured. Each can be given in code, or as an environment variable `WALRELAY_LOG_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_LOG_")

    ack: Ack | None = None
    """What Postgres may forget: what the log holds durably, or only what every registered reader has applied. Default:
    in a pipeline with a local log, which may be lost while the source is not, `destination`; else `log`."""

    segment_bytes: Bytes = Field(64 * MiB, ge=64 * 1024)
    """Changes in a segment, as Arrow, before it is closed at the next commit: large enough for readers, small enough
    that a restart has little to do again."""

    segment_age: Seconds = timedelta(milliseconds=30)
    """A segment is closed this long after its first change when the stream pauses: most of a change's latency."""

    segment_age_busy: Seconds = timedelta(milliseconds=500)
    """… and after this long when it does not: in a flood larger segments are worth more than latency."""

    memory_bytes: Bytes = Field(64 * MiB, ge=1 * MiB)
    """Open transactions, and rows of the open segment, kept in memory; beyond that they go to disk."""

    spill: Path | None = None
    """Where transactions that are too large for memory wait for their commit. Default: in a local log, else a
    temporary directory."""

    special_values: SpecialValuesWord = "null"
    """What becomes of values Arrow's types cannot hold (NaN in a numeric with a scale, …); they are counted, or, with
    `error`, their changes go to the quarantine. Default in a pipeline: as for its copies."""

    retain_age: Seconds | None = None
    """Segments older than this are removed once every registered reader has applied them. Default: in a pipeline a
    week; else all are kept."""

    heartbeat: Seconds | None = None
    """Write a small logical message this often, for sources that send no keepalive while others are busy."""

    failover: bool = False
    """Make the slot one that standbys synchronise (Postgres 17 and newer)."""

    streaming: bool = True
    """Let the server send large transactions while they run, instead of at their commit."""

    retry_delay: Seconds = timedelta(milliseconds=500)
    """Wait before the first attempt to connect again; doubles each time, up to a minute, and starts anew once
    changes flow."""

    slot_timeout: Seconds | None = None
    """How long to wait for a slot that another process reads. Default: for ever, since a crashed predecessor is shown
    as its reader until the server has noticed; when it is to end by itself (`until`), 90 seconds, which is longer than
    the server's own `wal_sender_timeout` as it is set by default."""

    stall_timeout: Seconds = Field(timedelta(seconds=30), gt=timedelta(0))
    """How long the server may be silent, though it is asked for an answer every second, before it is asked on another
    connection what it does, and the stream begun anew unless it works. Default in a pipeline: as for its copies."""

    compact: bool = True
    """Merge small segments in the background."""

    accept_timeline: int | None = None
    """Go on after a promotion: the timeline the server has now. Only right when the slot was synchronised."""


def failpoints_wanted() -> str:
    """What a test has armed through the environment (`walrelay.testing.failpoints`)."""
    return os.environ.get("WALRELAY_FAILPOINTS", "")


def copy_settings(**values: object) -> CopySettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    return made_of(CopySettings, values)


def capture_settings(**values: object) -> CaptureSettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    return made_of(CaptureSettings, values)


def made_of(kind: type[S], values: dict[str, object]) -> S:
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return kind(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"a setting is wrong: {wrong}") from error
