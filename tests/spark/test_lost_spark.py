"""A connection to Spark's JVM that breaks, and a JVM that is gone. (One that is killed: tests/faults.)"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from walrelay.changes.spark_failures import insist
from walrelay.errors import SparkLostError


def break_connection(spark: SparkSession) -> None:
    """The one of this thread, in a way that py4j does not mend by itself: the command goes out, no answer comes."""
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    client.get_thread_connection().stream.close()


def test_a_call_that_may_be_made_twice_survives_a_broken_connection(spark: SparkSession) -> None:
    context: Any = spark.sparkContext._jsc
    context.isLocal()
    break_connection(spark)
    with pytest.raises(Py4JError):
        context.isLocal()
    context.isLocal()
    break_connection(spark)
    assert insist("asking", context.isLocal) is True


def test_a_jvm_that_does_not_answer_twice_is_lost() -> None:
    asked = 0

    def call() -> None:
        nonlocal asked
        asked += 1
        raise ConnectionRefusedError

    with pytest.raises(SparkLostError, match="Spark was lost while asking"):
        insist("asking", call)
    assert asked == 2
