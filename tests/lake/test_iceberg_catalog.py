"""The catalog in a lake's file, as several tables' copies use it at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from pyspark.sql import SparkSession

from walrelay import IcebergDestination
from walrelay.destinations.iceberg.catalog import Catalog
from walrelay.destinations.iceberg.needs import address
from walrelay.destinations.lake.format import Place

SIDE_BY_SIDE = 8


def test_tables_made_side_by_side_share_the_namespace_that_one_of_them_makes(
    tmp_path: Path, lake_spark: SparkSession
) -> None:
    session = lake_spark.newSession()
    for name, value in IcebergDestination(tmp_path).capabilities.spark.settings.items():
        session.conf.set(name, value)
    catalog = Catalog(session)
    together, columns = Barrier(SIDE_BY_SIDE), catalog.schema("id int")

    def begin(place: Place) -> None:
        together.wait()
        catalog.make(place, columns, {}, address(tmp_path / place.schema / place.name))

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for turn in range(20):  # the moment in which two do not see each other is short
            list(pool.map(begin, [Place(f"s{turn}", f"t{number}") for number in range(SIDE_BY_SIDE)]))
