"""What a user can get wrong is refused at the start, or for its table alone, by name, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.bigquery_kit import PROJECT, BigQueryPlace
from tests.warehouse.warehouse_kit import Place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext, Identity
from walrelay.destinations.bigquery.client import Access, BigQueryClient
from walrelay.destinations.bigquery.destination import BigQueryDestination
from walrelay.destinations.snowflake.destination import SnowflakeDestination
from walrelay.destinations.warehouse.names import OWN, stage_prefix
from walrelay.errors import (
    ConfigError,
    DestinationPlaceMissingError,
    DestinationUnreachableError,
    NameClashError,
    OtherDestinationError,
    OtherPipelineError,
    OtherSourceError,
    WalrelayError,
)
from walrelay.testing.destination_contract import ContractSource

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def source(database: str, tmp_path: Path) -> Any:
    made = ContractSource(database, tmp_path)
    yield made
    made.close()


@pytest.fixture
def context(warehouse_spark: SparkSession) -> DestinationContext:
    return DestinationContext(
        "contract", copy_settings(), spark=lambda: warehouse_spark, source_id="one", pipeline_name="contract-1"
    )


def made(place: Place, statement: str) -> None:
    if isinstance(place, BigQueryPlace):
        place.client.query_and_wait(statement.format(place.table("keyed"), "INT64"))
    else:
        place.asked(statement.format('"keyed"', "NUMBER(38, 0)"))


def test_a_place_that_is_not_there_is_named_and_found_once_it_is_made(
    place: Place, context: DestinationContext
) -> None:
    nowhere = f"nowhere_{uuid4().hex[:8]}".upper()
    if isinstance(place, BigQueryPlace):
        missing: Destination = BigQueryDestination(PROJECT, nowhere, endpoint=place.endpoint)
    else:
        connection = {"host": "127.0.0.1", "port": place.port, "protocol": "http"}
        missing = SnowflakeDestination("f", "SHOP", nowhere, user="t", password="s", connection=connection)
    with pytest.raises(WalrelayError) as caught:
        missing.startup(context)
    assert isinstance(caught.value, DestinationPlaceMissingError), caught.value
    assert caught.value.hint.startswith("Make ")
    if isinstance(place, BigQueryPlace):
        place.client.create_dataset(nowhere)
    else:
        place.asked(f"CREATE SCHEMA SHOP.{nowhere}")
    missing.startup(context)
    missing.shutdown()


def test_a_dataset_elsewhere_is_refused(bigquery_place: BigQueryPlace, context: DestinationContext) -> None:
    with pytest.raises(ConfigError, match="not in asia-east1"):
        bigquery_place.destination(location="asia-east1").startup(context)


def test_another_place_than_the_pipelines_own_is_refused_before_anything_is_made(
    place: Place, context: DestinationContext
) -> None:
    with pytest.raises(OtherDestinationError):
        place.destination().startup(replace(context, expected=Identity("another", "there")))
    assert not [one for one in place.names() if one.startswith(OWN)]


def test_a_place_is_known_again(place: Place, context: DestinationContext) -> None:
    ids = []
    for _ in range(2):
        destination = place.destination()
        destination.startup(context)
        ids.append(destination.identity())
        destination.shutdown()
    assert ids[0] == ids[1] and ids[0] is not None
    again = place.destination()
    again.startup(replace(context, expected=ids[0]))
    again.shutdown()


def test_a_table_that_is_not_ours_is_left_alone(
    place: Place, context: DestinationContext, source: ContractSource
) -> None:
    made(place, "CREATE TABLE {} (id {})")
    destination = place.destination()
    destination.startup(context)
    try:
        with pytest.raises(NameClashError, match="walrelay has not made it"):
            source.copy(destination, "keyed")
        assert place.rows("public.keyed") == []
    finally:
        destination.shutdown()


def test_tables_belong_to_one_source_and_one_pipeline(
    place: Place, context: DestinationContext, source: ContractSource
) -> None:
    destination = place.destination()
    destination.startup(context)
    source.do("INSERT INTO keyed VALUES (1, 'x', 1)")
    source.copy(destination, "keyed")
    destination.shutdown()
    for other, kind in (
        (replace(context, source_id="two"), OtherSourceError),
        (replace(context, pipeline_name="another-2"), OtherPipelineError),
    ):
        stranger = place.destination()
        stranger.startup(other)
        try:
            with pytest.raises(kind):
                source.copy(stranger, "keyed")
        finally:
            stranger.shutdown()
    assert len(place.rows("public.keyed")) == 1


def test_two_tables_that_would_have_one_name_are_refused_by_name(
    place: Place, context: DestinationContext, source: ContractSource
) -> None:
    source.connection.execute("CREATE SCHEMA sales; CREATE TABLE sales.a (id int); CREATE TABLE sales_a (id int)")
    names = {source.schema(one).id: source.schema(one).name for one in ("sales.a", "public.sales_a")}
    destination = place.destination()
    destination.startup(replace(context, names=lambda tables: {one: names[one] for one in tables}))
    try:
        source.copy(destination, "sales.a")
        with pytest.raises(NameClashError, match=r"public\.sales_a and sales\.a would both be called sales_a"):
            source.copy(destination, "public.sales_a")
    finally:
        destination.shutdown()


def test_a_dead_service_is_told_soon_and_may_come_back(context: DestinationContext) -> None:
    with pytest.raises(DestinationUnreachableError) as caught:
        BigQueryDestination("p", "d", endpoint="http://127.0.0.1:1").startup(context)
    assert caught.value.retryable


def test_a_job_whose_answer_was_lost_is_found_under_its_id(bigquery_place: BigQueryPlace) -> None:
    """The service has done it; the answer never came. To begin it again is refused by its id, and its state is read."""
    client = BigQueryClient(Access(PROJECT, endpoint=bigquery_place.endpoint), Event())
    table = bigquery_place.table("lost")
    bigquery_place.client.query_and_wait(f"CREATE TABLE {table} (n INT64)")
    begin: Callable[..., Any] = client.google.query
    lost: list[str] = []

    def losing(*given: Any, **more: Any) -> Any:
        begun = begin(*given, **more)
        if not lost:
            begun.result()
            lost.append(begun.job_id)
            raise ConnectionError("the answer is lost")
        return begun

    client.google.query = losing  # type: ignore[method-assign]
    client.query(f"INSERT INTO {table} VALUES (1)", f"lost_{bigquery_place.dataset}", "trying")
    client.close()
    assert lost and len(bigquery_place.rows("lost")) == 1


def test_stages_of_a_dead_run_are_swept_and_no_others(
    place: Place, context: DestinationContext, source: ContractSource
) -> None:
    destination = place.destination()
    destination.startup(context)
    destination.shutdown()
    mine, others = f"{stage_prefix('contract-1')}1_x", f"{stage_prefix('another-2')}1_x"
    for name in (mine, others):
        if isinstance(place, BigQueryPlace):
            place.client.query_and_wait(f"CREATE TABLE `{place.dataset}`.`{name}` (n INT64)")
        else:
            place.asked(f'CREATE TABLE "{name}" (n INT)')
    destination = place.destination()
    destination.startup(context)
    destination.shutdown()
    assert mine not in place.names() and others in place.names()
