"""Postgres keeps the contract of destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.warehouse.postgres_kit import contents, fresh_database
from walrelay import PostgresDestination
from walrelay.destinations.base import Destination
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory
from walrelay.testing.postgres import EmbeddedPostgres

IN_LONG = ("test_a_batch_may_come_again",)


class TestPostgresDestination(DestinationContract):
    @pytest.fixture
    def target(self, postgres18: EmbeddedPostgres) -> Iterator[str]:
        with fresh_database(postgres18) as url:
            yield url

    @pytest.fixture
    def destination_factory(self, target: str) -> DestinationFactory:
        self._url = target
        return lambda: PostgresDestination(target)

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return contents(self._url, table)


@pytest.mark.long
class TestPostgres14(TestPostgresDestination):
    """From the newest version to the oldest."""

    @pytest.fixture
    def target(self, postgres_server: Callable[[int], EmbeddedPostgres]) -> Iterator[str]:
        with fresh_database(postgres_server(14)) as url:
            yield url
