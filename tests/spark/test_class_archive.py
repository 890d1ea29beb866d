"""The archive of Spark's classes: that it is used, and that a useless one is no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from walrelay.spark.class_archive import archive_path

pytestmark = pytest.mark.spark
START = """
import sys
from pathlib import Path
from walrelay.spark import class_archive
class_archive.archive_path = lambda: Path(sys.argv[1])
from walrelay.spark.session import spark_session
spark = spark_session()
print(spark.range(3).count())
spark.stop()
"""


def test_the_jvm_maps_the_archive_that_set_up_has_made(spark: SparkSession) -> None:
    assert archive_path().exists(), "make env"
    context = spark.sparkContext
    assert context._jvm is not None
    jvm = context._jvm.java.lang.ProcessHandle.current().pid()
    assert archive_path().name in Path(f"/proc/{jvm}/maps").read_text()


def test_spark_starts_with_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsa"
    damaged.write_bytes(bytes(10_000))
    done = subprocess.run([sys.executable, "-c", START, str(damaged)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
