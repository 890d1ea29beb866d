"""The one Spark session that a process of tests has at a time: packages and extensions are for one that starts."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from walrelay.spark.needs import EXTENSIONS
from walrelay.spark.session import running_session, spark_session, stop_session

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session_with(settings: Mapping[str, str]) -> SparkSession:
    """The running session when it has these extensions, and no others; else one that takes its place."""
    running = running_session()
    if running is not None and (running.conf.get(EXTENSIONS, "") or "") != settings.get(EXTENSIONS, ""):
        stop_session()
    return spark_session(settings=settings)
