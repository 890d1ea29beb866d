"""What all suites of destinations are given: a server, sources in it, and the destination under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol
from uuid import uuid4

import pytest

from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.model.special import SpecialValues
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DestinationFactory = Callable[[], Destination]
SourceFactory = Callable[[str, tuple[str, ...]], ContractSource]
"""By the statements that make its tables, and these tables' names."""


class Opened(Protocol):
    """The destination, started; at the end of a `with` it is let go. `made` is another one than the factory's."""

    def __call__(
        self, special_values: SpecialValues = "null", made: Destination | None = None
    ) -> AbstractContextManager[Destination]: ...


class ContractFixtures:
    """Subclasses say what is tested: `destination_factory`."""

    durable: ClassVar[bool] = True
    """False for one that forgets when it is let go: it is then not opened again."""

    @pytest.fixture
    def destination_factory(self) -> DestinationFactory:
        raise NotImplementedError("a fixture that gives the destinations under test")

    @pytest.fixture(scope="class")
    @classmethod
    def contract_server(cls) -> Iterator[EmbeddedPostgres]:
        with EmbeddedPostgres() as server:
            yield server

    @pytest.fixture
    def source_of(self, contract_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[SourceFactory]:
        with ExitStack() as open_sources:

            def made(ddl: str, names: tuple[str, ...]) -> ContractSource:
                url = contract_server.create_database(f"contract_{uuid4().hex[:12]}")
                return open_sources.enter_context(closing(ContractSource(url, tmp_path, ddl, names)))

            yield made

    @pytest.fixture
    def source(self, contract_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[ContractSource]:
        source = ContractSource(contract_server.create_database(f"contract_{uuid4().hex[:12]}"), tmp_path)
        yield source
        source.close()

    @pytest.fixture
    def spark(self) -> SparkSession | None:
        """The session for a destination that wants one."""
        return None

    @pytest.fixture
    def opened(self, spark: SparkSession | None, destination_factory: DestinationFactory) -> Opened:
        @contextmanager
        def opened(special_values: SpecialValues = "null", made: Destination | None = None) -> Iterator[Destination]:
            destination = made or destination_factory()
            context = DestinationContext("contract", copy_settings(special_values=special_values))
            destination.startup(context if spark is None else replace(context, spark=lambda: spark))
            try:
                yield destination
            finally:
                destination.shutdown()

        return opened

    @pytest.fixture
    def destination(self, opened: Opened) -> Iterator[Destination]:
        with opened() as found:
            yield found
