"""A driver that copies into both lakes on one session of a cluster, changes the source, and catches up again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psycopg

from tests.lake.lake_kit import DeltaLake, IcebergLake, Lake, catch_up
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.spark.needs import settings_for
from walrelay.spark.session import spark_session, stop_session


def needs_of(lakes: list[Lake]) -> SparkNeeds:
    """Of all of them together."""
    each = [lake.destination().capabilities.spark for lake in lakes]
    return SparkNeeds(
        packages=tuple(name for one in each for name in one.packages),
        extensions=tuple(name for one in each for name in one.extensions),
        settings={name: value for one in each for name, value in one.settings.items()},
    )


def main(task: dict[str, Any]) -> None:
    directory = Path(task["directory"])
    lakes: list[Lake] = [DeltaLake(directory / "delta"), IcebergLake(directory / "iceberg")]
    own = {"spark.master": task["master"], "spark.executor.memory": "512m", "spark.cores.max": "2"}
    spark = spark_session(settings=settings_for(needs_of(lakes), own))
    copied: dict[str, list[str]] = {lake.name: [] for lake in lakes}

    def bring() -> None:
        for lake in lakes:
            place = directory / f"of_{lake.name}"
            place.mkdir(exist_ok=True)
            copied[lake.name] += catch_up(place, task["url"], task["slots"][lake.name], lake, spark).copied

    bring()
    with psycopg.connect(task["url"], autocommit=True) as connection:
        for statement in task["changes"]:
            connection.execute(statement)
    bring()
    context: Any = spark.sparkContext._jsc
    executors = context.sc().getExecutorMemoryStatus().size()
    stop_session()
    print(json.dumps({"executors": executors, "copied": {name: sorted(tables) for name, tables in copied.items()}}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
