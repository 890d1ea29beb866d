"""How Spark reads a log whose URL holds a secret, without being told it in an option, which it prints and keeps.

A data source is registered as pickled code, which nobody prints: one made for this log alone carries the URL in it, and
the option `log` shows the rest.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from walrelay.changes.spark_failures import spark_failures
from walrelay.log.storage import public_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walrelay.spark.datasource import WalrelayDataSource

FORMAT = "walrelay"


@dataclass(frozen=True, slots=True)
class LogAddress:
    """What to tell Spark: `.format(format).option("log", location)`."""

    format: str
    location: str


class LazyAddress:
    """The address of a log for a session that is started when somebody needs it. For several threads."""

    def __init__(self, spark: Callable[[], SparkSession], url: str) -> None:
        if "://" not in url:  # the session's processes may have been started in another directory
            url = str(Path(url).absolute())
        self.location = public_url(url)
        self._spark = spark
        self._url = url
        self._format: str | None = None
        self._lock = threading.Lock()

    def format(self) -> str:
        with self._lock:
            if self._format is None:
                self._format = log_address(self._spark(), self._url).format
            return self._format


def log_address(spark: SparkSession, url: str) -> LogAddress:
    """The address by which this session, and no new one that is made of it, can read the log."""
    shown = public_url(url)
    if shown == url:
        return LogAddress(FORMAT, url)
    name = f"{FORMAT}_{uuid.uuid4().hex[:12]}"
    with spark_failures("making the log known"):
        spark.dataSource.register(_source_of(name, url))
    return LogAddress(name, shown)


def _source_of(called: str, url: str) -> type[WalrelayDataSource]:
    from walrelay.spark.change_source import LogOptions
    from walrelay.spark.datasource import WalrelayDataSource

    class OneLog(WalrelayDataSource):
        # Made in a function, so that it is pickled as a whole and not by its name.
        @classmethod
        def name(cls) -> str:
            return called

        def _log_options(self) -> LogOptions:
            if self._settled is None:
                self._settled = replace(LogOptions.of(self.options), log=url).settled()
            return self._settled

    return OneLog
