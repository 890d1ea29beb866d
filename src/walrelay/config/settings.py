"""Everything a user may set about a copy, with the default and why it is that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from walrelay.errors import ConfigError
from walrelay.model.special import SpecialValues

MiB = 1024 * 1024


def _seconds(value: object) -> object:
    """A bare number, also as the text that the environment gives, is seconds."""
    try:
        return timedelta(seconds=float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return value


Seconds = Annotated[timedelta, BeforeValidator(_seconds)]
UnknownTypes = Literal["bytes", "text"]


class CopySettings(BaseSettings):
    """How tables are copied. Each can be given in code, or as an environment variable `WALRELAY_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_", frozen=True, extra="forbid")

    special_values: SpecialValues = "null"
    """What becomes of values the destination's type cannot hold; they are counted in the summary."""

    unknown_types: UnknownTypes = "bytes"
    """How a type without a decoder arrives: Postgres's own binary form, or its text."""

    max_tables: PositiveInt = 4
    """Tables copied at the same time; each holds one connection of its own for the snapshot."""

    range_bytes: PositiveInt = Field(256 * MiB, ge=1 * MiB)
    """How much of a table, with its TOAST, one Spark task reads. Large enough that the tenth of a second which Spark
    takes between two tasks does not count, small enough that all cores end at about the same time."""

    max_ranges: PositiveInt = 1024
    """At most so many tasks a table; ranges grow beyond `range_bytes` when a table is that large."""

    chunk_bytes: PositiveInt = Field(2 * MiB, ge=64 * 1024)
    """Received bytes decoded at once: a task's memory is a few times this, or a few times its largest row."""

    file_bytes: PositiveInt = Field(256 * MiB, ge=1 * MiB)
    """Size at which a task starts its next Parquet file."""

    staging: Path | None = None
    """Where copies land before the destination takes them; must be reachable from all Spark workers. Default: beside
    a file destination, else a temporary directory."""

    retries: int = Field(5, ge=0)
    """How often a table's copy starts again after a lost connection."""

    retry_delay: Seconds = timedelta(seconds=1)
    """Wait before the first retry; doubles each time, up to a minute."""

    busy_timeout: Seconds = timedelta(seconds=60)
    """How long to wait for a destination that another program holds."""


def copy_settings(**values: object) -> CopySettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return CopySettings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"a setting is wrong: {wrong}") from error
