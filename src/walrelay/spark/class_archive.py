"""The classes that Spark loads, parsed and laid out once in set-up: `python -m walrelay.spark.class_archive`.

Half of a JVM's start goes into reading the same ten thousand classes out of jars. The JVM can map them from a file
instead. It checks by itself that the file fits (its own build, every jar) and goes on without it when it does not.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from walrelay.config.places import user_cache
from walrelay.errors import WalrelayError

_NAME = "spark-classes.jsa"
PATIENCE = 180.0
"""Seconds for the JVM to write the archive while it ends."""


def archive_path() -> Path:
    """Beside the packages that it is made of, since another environment has other jars; in this user's cache where that
    may only be read, and has none."""
    beside = Path(sys.prefix) / "share" / "walrelay" / _NAME
    cache = user_cache()
    if beside.exists() or cache is None or _may_make(beside.parent):
        return beside
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:16]
    return cache / "walrelay" / f"spark-{environment}" / _NAME


def _may_make(directory: Path) -> bool:
    there = next(one for one in (directory, *directory.parents) if one.exists())
    return os.access(there, os.W_OK)


def archive_options() -> str:
    """What to tell a JVM that runs Spark; nothing when no archive was made."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path}" if path.exists() and " " not in str(path) else ""


def create_archive() -> Path:
    """Run a little of all that a pipeline does, and let the JVM write down what it has loaded."""
    from pyspark import SparkContext

    from walrelay.spark.session import LOCAL_SETTINGS, spark_session

    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    options = f"{LOCAL_SETTINGS['spark.driver.extraJavaOptions']} -XX:ArchiveClassesAtExit={fresh}"
    spark: Any = spark_session(settings={"spark.driver.extraJavaOptions": options})
    spark.sparkContext.parallelize([0], 1).mapPartitions(list).count()
    spark.range(10).count()
    changes = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda _rows, _batch: None).start()
    changes.processAllAvailable()
    changes.stop()
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE)
    fresh.replace(path)
    return path


def main() -> None:
    begun = time.monotonic()
    try:
        path = create_archive()
    except (WalrelayError, OSError) as error:
        # It only makes Spark start sooner.
        sys.stdout.write(f"Spark will start slowly: {error}\n")
    else:
        size = path.stat().st_size / 1e6
        sys.stdout.write(f"Spark's classes ready after {time.monotonic() - begun:.1f} s ({size:.0f} MB)\n")


if __name__ == "__main__":
    main()
