"""One Spark session with what the lakes need, for all tests that write to one."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from walrelay.destinations.delta.needs import NEEDS as DELTA
from walrelay.spark.needs import EXTENSIONS, settings_for
from walrelay.spark.session import LOCAL_SETTINGS, running_session, spark_session, stop_session

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(scope="module")
def lake_spark() -> SparkSession:
    """Another session that runs in this process is stopped: Spark takes packages only when it starts. With the quick
    compiler: tables here are small, and what the slow one would save is never earned."""
    running = running_session()
    if running is not None and DELTA.extensions[0] not in (running.conf.get(EXTENSIONS, "") or ""):
        stop_session()
    return spark_session(settings=settings_for(DELTA, {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}))
