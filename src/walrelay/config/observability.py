"""Everything a user may set about watching a pipeline: its log, its metrics, and who is told what has happened."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PositiveInt, SecretStr, ValidationInfo, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from walrelay.config.choices import HookEvent, LogFormat, LogLevel
from walrelay.config.settings import Bytes, Seconds, Settings, made_of
from walrelay.errors import ConfigError

GiB = 1024**3
ALL_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)


class MetricsSettings(Settings):
    """Where metrics, health and readiness are served, and the limits they are judged by. Each can be given in code, or
    as an environment variable `WALRELAY_METRICS_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_METRICS_")

    host: str = "127.0.0.1"
    """The address to listen on. Default: this machine alone, since whoever can ask reads the tables' names."""

    port: int | None = Field(None, ge=0, le=65535)
    """The port of /metrics, /health and /ready; 0 is any free one. Default: nothing is served."""

    every: Seconds = Field(timedelta(seconds=2), gt=timedelta(0))
    """How often the pipeline is looked at. A scrape is answered with the last look, and disturbs nobody."""

    tables: int = Field(200, ge=0)
    """For so many tables there are series of their own: those in error first, then by name. A monitoring system keeps
    each series for months."""

    lag_limit: Seconds = Field(timedelta(minutes=1), gt=timedelta(0))
    """A pipeline that is further behind is not ready, and the hooks hear of it."""

    wal_limit: Bytes | None = 10 * GiB
    """Bytes of WAL that the slot may keep on the source before it counts as at risk, whatever Postgres allows it: a
    source whose disk is full stops. None: only what Postgres says counts."""

    stall_limit: Seconds = Field(timedelta(minutes=15), gt=timedelta(0))
    """A pipeline whose loop has not moved for so long is not healthy. Longer than any batch takes: /health is what
    makes a service manager kill a process."""


class LoggingSettings(Settings):
    """What is written to stderr while a pipeline runs. Each can be given in code, or as an environment variable
    `WALRELAY_LOGGING_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_LOGGING_")

    format: LogFormat = "auto"
    """`auto`: on a terminal the live view, elsewhere one JSON object a line. `json` and `text`: lines, everywhere."""

    level: LogLevel = "info"
    """The least important lines to write: debug, info, warning or error."""


def _command(value: object) -> object:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


def _events(value: object) -> object:
    return tuple(one.strip() for one in value.split(",") if one.strip()) if isinstance(value, str) else value


class HookSettings(Settings):
    """Who is told when something happens (docs/how-to/monitor.md). Each can be given in code, or as an environment
    variable `WALRELAY_HOOKS_…`."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_HOOKS_")

    webhook: SecretStr | None = None
    """An http or https URL that gets each event as a POST with a JSON body."""

    secret: SecretStr | None = None
    """Signs what the webhook gets: X-Walrelay-Signature is the HMAC-SHA256 of the timestamp, a dot and the body."""

    command: Annotated[
        tuple[str, ...] | None, NoDecode, BeforeValidator(_command, json_schema_input_type=str | tuple[str, ...])
    ] = None
    """A program that is run for each event, with the same JSON on its standard input."""

    events: Annotated[
        tuple[HookEvent, ...], NoDecode, BeforeValidator(_events, json_schema_input_type=str | tuple[HookEvent, ...])
    ] = ALL_EVENTS
    """Which events are told. Default: all."""

    timeout: Seconds = Field(timedelta(seconds=10), gt=timedelta(0))
    """How long one attempt may take."""

    retries: int = Field(5, ge=0)
    """How often an event is tried again, with growing waits, before it is given up."""

    queue: PositiveInt = 1000
    """So many events may wait; more are dropped, and counted. The pipeline never waits for a hook."""

    @field_validator("webhook")
    @classmethod
    def _is_web_address(cls, value: SecretStr | None, _info: ValidationInfo) -> SecretStr | None:
        if value is not None:
            parts = urlsplit(value.get_secret_value())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("not an http or https URL")
        return value

    @property
    def is_wanted(self) -> bool:
        return self.webhook is not None or bool(self.command)


def metrics_settings(**values: object) -> MetricsSettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    return made_of(MetricsSettings, values)


def logging_settings(**values: object) -> LoggingSettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    return made_of(LoggingSettings, values)


def hook_settings(**values: object) -> HookSettings:
    """Settings from keyword arguments and environment; a wrong one raises `ConfigError` naming it."""
    return made_of(HookSettings, values)


@dataclass(frozen=True)
class Observability:
    """All of it."""

    metrics: MetricsSettings = field(default_factory=metrics_settings)
    logging: LoggingSettings | None = None
    """None: as `walrelay replicate` shows a run, to people."""
    hooks: HookSettings = field(default_factory=hook_settings)


def address(text: str) -> tuple[str | None, int]:
    """Host and port as people write them: `9187`, `:9187`, `0.0.0.0:9187`, `[::1]:9187`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ConfigError(f"not an address to listen on: {text}", hint="--metrics 127.0.0.1:9187, or --metrics 9187")
    return host.strip("[]") or None, int(port)
