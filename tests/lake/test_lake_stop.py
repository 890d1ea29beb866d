"""A pipeline that is told to stop while a large batch is being merged: it does not wait for the end of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tests.faults.capture_kit import wait_until
from tests.lake.lake_kit import Lake, Opened
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.lake.statements import Statements
from walrelay.errors import StoppedError
from walrelay.testing.destination_contract import ContractSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
LONG_SECONDS = 500.0
"""More than a test may take: nobody who waits for it passes."""


def test_a_merge_is_given_up_when_the_pipeline_stops_and_comes_again(
    source: ContractSource,
    lake: Lake,
    opened: Opened,
    lake_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merging, stopping = tmp_path / "merging", threading.Event()

    def waiting() -> bool:
        """In Spark's worker, while the statement reads its rows."""
        merging.touch()
        time.sleep(LONG_SECONDS)
        return True

    with opened(lake.destination()) as destination:
        source.copy(destination, "keyed")
    begun = source.batch().to
    source.do("INSERT INTO keyed SELECT g, 'new', g FROM generate_series(1, 9) g")
    destination = lake.destination()
    destination.startup(DestinationContext("contract", copy_settings(), spark=lambda: lake_spark, stopping=stopping))
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        view, slow = Statements._view, udf(waiting, "boolean").asNondeterministic()
        patch.setattr(Statements, "_view", lambda self, rows: view(self, rows.where(slow())))
        writing = pool.submit(destination.write_events, source.batch(begun))
        wait_until(merging.exists, "it merges")
        stopping.set()
        with pytest.raises(StoppedError, match="applying changes"):
            writing.result()
    destination.shutdown()
    assert lake.held("keyed") == []
    with opened(lake.destination()) as destination:
        destination.write_events(source.batch(begun))
    assert [row["id"] for row in sorted(lake.held("keyed"), key=lambda row: row["id"])] == list(range(1, 10))
