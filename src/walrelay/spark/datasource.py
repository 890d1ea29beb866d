"""`format("walrelay")`: a table as a typed DataFrame, read in parallel under one snapshot; or the change log."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from walrelay.errors import ConfigError
from walrelay.spark.change_source import ChangeReader, ChangeStreamReader, LogOptions, change_ddl
from walrelay.spark.failures import as_text


class WalrelayDataSource(DataSource):
    """A Postgres table (options: `url`, `table`, and those of `CopySettings` that concern reading), or the change log
    (option `log`, see `change_source`), which can also be read as a stream."""

    @classmethod
    def name(cls) -> str:
        return "walrelay"

    def schema(self) -> str:
        with as_text():
            if self._is_log():
                return change_ddl(LogOptions.of(self.options))
            # Only here: a stream's process needs neither a database driver nor decoders.
            from walrelay.spark.table_source import ReadOptions, table_ddl

            return table_ddl(ReadOptions.of(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        with as_text():
            if self._is_log():
                return ChangeReader(LogOptions.of(self.options))
            from walrelay.spark.table_source import ReadOptions, TableReader

            return TableReader(ReadOptions.of(self.options))

    def streamReader(self, schema: Any) -> ChangeStreamReader:
        with as_text():
            if not self._is_log():
                raise ConfigError(
                    "a stream is read from a change log, not from the database",
                    hint='Run `walrelay capture`, then use .option("log", DIR).',
                )
            return ChangeStreamReader(LogOptions.of(self.options))

    def _is_log(self) -> bool:
        return any(key.lower() == "log" for key in dict(self.options))
