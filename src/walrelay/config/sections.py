"""A pipeline's configuration: its sections and every key in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from walrelay.config.observability import HookSettings, LoggingSettings, MetricsSettings
from walrelay.config.section import Section
from walrelay.config.settings import CaptureSettings, CopySettings, Settings
from walrelay.config.table_keys import TableKeys

Mode = Literal["copy", "changes", "both"]
STATE = Path("walrelay-state")


class PipelineSection(CopySettings):
    """What the pipeline does, and how it copies."""

    id: str | None = Field(None, min_length=1)
    """The pipeline's name in its state, and as a reader of the log. Default: the publication's."""

    mode: Mode = "both"
    """`both`: copy all tables and keep them current. `copy`: copy them once. `changes`: every change from now on."""

    begin_anew: bool = False
    """Where slot, log or destination turn out to be lost: make them anew, and copy again."""


class SourceSection(Settings):
    """The database whose tables are replicated."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_SOURCE_")

    url: SecretStr = Field(min_length=1)
    """`postgresql://user@host:5432/database`. A password is best a reference, `postgresql://user:${PGPASSWORD}@host/db`,
    or left to PGPASSWORD and ~/.pgpass."""

    publication: str = Field(min_length=1)
    """The publication that names the tables."""

    slot: str | None = Field(None, min_length=1, max_length=63, pattern=r"^[a-z0-9_]+$")
    """The replication slot. Default: one of its own, `walrelay_`, the publication, and eight letters."""

    migrate_source: bool = False
    """First install the DDL trigger on the source (docs/how-to/follow-ddl.md); needs a superuser."""


class StoreSection(Settings):
    """Where the pipeline keeps what it must remember."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_STORE_")

    path: Path | None = None
    """A directory for the state; the change log is in it too, unless `log.location` says otherwise. `walrelay
    replicate` uses walrelay-state."""

    url: SecretStr | None = None
    """A Postgres in place of the directory, which then holds the change log alone."""


class LogSection(CaptureSettings):
    """The change log, and how changes are captured into it."""

    location: str | None = Field(None, min_length=1)
    """A directory or s3://bucket/prefix. Default: `log` in `store.path`."""

    follow: bool = False
    """Capture nothing: `walrelay capture` elsewhere writes the log at `log.location`."""


class DestinationSection(Settings):
    """Where the tables are brought."""

    model_config = SettingsConfigDict(env_prefix="WALRELAY_DESTINATION_")

    url: SecretStr = Field(min_length=1)
    """`duckdb:///out.duckdb`, `delta:///lake`, `iceberg:///lake`, `postgresql://…`, …: docs/destinations has a page for
    each. Three slashes are relative to where the command runs, four are absolute."""

    lane: Literal["files", "frames"] | None = None
    """`frames`: let Spark collapse changes first, for DuckDB. Default: what the destination is for."""


def _as_text(value: object) -> object:
    """Spark's settings are texts, and a file may say 4 or true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SparkValue = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int | float | bool)]


class PipelineConfig(Section):
    """A pipeline's configuration, as `walrelay run -c pipeline.yaml` takes it."""

    pipeline: PipelineSection = Field(default_factory=lambda: PipelineSection.model_validate({}))
    """What the pipeline does, and how it copies."""

    source: SourceSection
    """The database whose tables are replicated."""

    store: StoreSection = Field(default_factory=lambda: StoreSection.model_validate({}))
    """Where the pipeline keeps what it must remember: a path, or the URL of a Postgres. Mode `copy` needs none."""

    log: LogSection = Field(default_factory=lambda: LogSection.model_validate({}))
    """The change log, and how changes are captured into it."""

    destination: DestinationSection | None = None
    """Where the tables are brought."""

    destinations: tuple[DestinationSection, ...] | None = None
    """The same as a list. This version takes one."""

    spark: dict[str, SparkValue] = Field(default_factory=dict, repr=False)
    """Settings of Spark, by their own names: `spark.driver.memory: 2g`."""

    tables: dict[str, TableKeys] = Field(default_factory=dict)
    """Options by pattern: `shop.orders`, `shop.*`, `*`. The more exact pattern wins, and of equally exact ones the
    later."""

    metrics: MetricsSettings = Field(default_factory=lambda: MetricsSettings.model_validate({}))
    """Where metrics, health and readiness are served, and the limits by which a pipeline is judged."""

    logging: LoggingSettings = Field(default_factory=lambda: LoggingSettings.model_validate({}))
    """What is written to stderr while the pipeline runs."""

    hooks: HookSettings = Field(default_factory=lambda: HookSettings.model_validate({}))
    """Who is told when something happens (docs/how-to/monitor.md)."""

    @property
    def target(self) -> DestinationSection:
        """The one destination."""
        found = self.destination or (self.destinations or (None,))[0]
        assert found is not None, "a configuration without one is refused when it is read"
        return found

    @property
    def state(self) -> Path:
        """The directory of state and log."""
        return self.store.path or STATE

    @property
    def id(self) -> str:
        return self.pipeline.id or self.source.publication
