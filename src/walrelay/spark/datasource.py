"""`format("walrelay")`: a table as a typed DataFrame, read in parallel under one snapshot; or the change log."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from walrelay.changes.spark_failures import as_text
from walrelay.errors import ConfigError
from walrelay.spark.change_source import ChangeReader, ChangeStreamReader, LogOptions, change_ddl


class WalrelayDataSource(DataSource):
    """A Postgres table (options: `url`, `table`, and those of `CopySettings` that concern reading), or the change log
    (option `log`, see `change_source`), which can also be read as a stream."""

    _settled: LogOptions | None = None

    @classmethod
    def name(cls) -> str:
        return "walrelay"

    def schema(self) -> str:
        with as_text():
            if self._is_log():
                return change_ddl(self._log_options())
            # Only here: a stream's process needs neither a database driver nor decoders.
            from walrelay.spark.table_source import ReadOptions, table_ddl

            return table_ddl(ReadOptions.of(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        with as_text():
            if self._is_log():
                return ChangeReader(self._log_options())
            from walrelay.spark.table_source import ReadOptions, TableReader

            return TableReader(ReadOptions.of(self.options))

    def streamReader(self, schema: Any) -> ChangeStreamReader:
        with as_text():
            if not self._is_log():
                raise ConfigError(
                    "a stream is read from a change log, not from the database",
                    hint='Run `walrelay capture`, then use .option("log", DIR).',
                )
            return ChangeStreamReader(self._log_options())

    def _log_options(self) -> LogOptions:
        """Settled when Spark first asks: it pickles this object with the schema, and reads by the copy."""
        if self._settled is None:
            self._settled = LogOptions.of(self.options).settled()
        return self._settled

    def _is_log(self) -> bool:
        return any(key.lower() == "log" for key in dict(self.options))
