"""The store that `docs/how-to/write-a-store.md` builds keeps the contract, and works in a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.e2e.test_readme import blocks
from walrelay import MemoryDestination, Pipeline, PostgresSource

pytest.register_assert_rewrite("walrelay.testing.store_contract")

PAGE: dict[str, Any] = {"__name__": __name__}
exec("".join(blocks("python", "docs/how-to/write-a-store.md")), PAGE)
TestFileStore = PAGE["TestFileStore"]


@pytest.mark.postgres
def test_a_pipeline_goes_on_where_it_was(database: str, tmp_path: Path) -> None:
    slot, destination = f"written_{uuid4().hex[:12]}", MemoryDestination()
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)"
        )
        copies = []
        for number in (2, 3):
            store = PAGE["FileStore"](tmp_path, "written")
            pipeline = Pipeline(
                PostgresSource(database, publication="p"), destination, store, "both", log=tmp_path / "log", slot=slot
            )
            copies.append(len(pipeline.run("caught-up").tables))
            source.execute("INSERT INTO t VALUES (%s)", (number,))
        assert copies == [1, 0] and [row["id"] for row in destination.rows("public.t")] == [1, 2]
        source.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
