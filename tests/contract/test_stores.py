"""Every store keeps the store contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from walrelay.stores.memory import MemoryStore
from walrelay.stores.postgres import PostgresStore
from walrelay.stores.sqlite import SqliteStore

pytest.register_assert_rewrite("walrelay.testing.store_contract")
from walrelay.testing.store_contract import StoreContract, StoreFactory  # noqa: E402


class TestMemoryStore(StoreContract):
    durable = False

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return MemoryStore


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        return lambda pipeline_id: SqliteStore(tmp_path / "state ?#%.db", pipeline_id)


@pytest.mark.postgres
class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store_factory(self, database: str) -> StoreFactory:
        return lambda pipeline_id: PostgresStore(database, pipeline_id)
