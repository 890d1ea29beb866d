"""What a user can get wrong is refused at the start, by name, before anything is changed."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext, Identity
from walrelay.destinations.clickhouse import preflight
from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.names import refuse_names, view_name
from walrelay.destinations.clickhouse.values import NARROW
from walrelay.destinations.urls import destination_from_url
from walrelay.errors import (
    ConfigError,
    DestinationError,
    DestinationLoginError,
    DestinationNotWritableError,
    DestinationRightsError,
    DestinationUnreachableError,
    MissingExtraError,
    NameClashError,
    OtherDestinationError,
    OtherPipelineError,
    OtherSourceError,
)
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema

__all__ = ["clickhouse", "place"]
INT4, TEXT = PgType(23, "int4"), PgType(25, "text")
TEXTS = PgType(1009, "_text", kind="array", element=TEXT)
ORDERS = TableSchema(
    16400, TableName("public", "orders"), (Column("id", INT4, attnum=1),), ("id",), identity_columns=("id",)
)


def context(id_: str = "shop", **rest: Any) -> DestinationContext:
    given = {"source_id": "one/1", "source_name": "here", "pipeline_name": "shop-1", "mode": "both", **rest}
    return DestinationContext(id_, copy_settings(), **given)


@contextmanager
def opened(url: str, **rest: Any) -> Iterator[ClickHouseDestination]:
    destination = ClickHouseDestination(url)
    destination.startup(context(**rest))
    try:
        yield destination
    finally:
        destination.shutdown()


@pytest.mark.parametrize(
    "url", ["clickhouse://host", "clickhouse:///db", "clickhouse://host/a/b", "clickhouse://host:x/db", "clickhouse:"]
)
def test_a_url_without_a_host_or_a_database(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        destination_from_url(url)
    assert "clickhouse://user:password@host:8123/database" in caught.value.hint


def test_options_that_there_are_not() -> None:
    with pytest.raises(ConfigError, match="unknown option"):
        ClickHouseDestination("clickhouse://host/db?colour=red")
    with pytest.raises(ConfigError, match="neither yes nor no"):
        ClickHouseDestination("clickhouse://host/db?history=maybe")


def test_a_password_is_never_told() -> None:
    made = ClickHouseDestination("clickhouse://user:hush@host/db?secure=yes")
    assert "hush" not in f"{made!r} {made.address} {made.address!r}"
    assert (made.address.port, made.address.password) == (8443, "hush")


def test_a_wrong_password_and_a_server_that_is_not_there(clickhouse: ClickHouse, place: str) -> None:
    wrong = clickhouse.url(place).replace(":s3cret", ":other")
    with pytest.raises(DestinationLoginError) as caught:
        ClickHouseDestination(wrong).startup(context())
    assert "other" not in str(caught.value) and "%40" in caught.value.hint
    with opened(clickhouse.url(place)):
        pass
    with pytest.raises(DestinationUnreachableError) as gone:
        ClickHouseDestination("clickhouse://127.0.0.1:1/db").startup(context())
    assert gone.value.retryable


def test_a_database_that_is_not_there_and_one_that_cannot_replace_a_view(clickhouse: ClickHouse, place: str) -> None:
    with pytest.raises(DestinationNotWritableError, match="no database nowhere") as caught:
        ClickHouseDestination(clickhouse.url("nowhere")).startup(context())
    client = clickhouse.client()
    assert caught.value.hint == "CREATE DATABASE `nowhere`"
    client.command(caught.value.hint)
    with opened(clickhouse.url("nowhere")):
        pass
    clickhouse.drop_database("nowhere")
    client.command("CREATE DATABASE plain ENGINE = Memory")
    with pytest.raises(DestinationNotWritableError, match="engine Memory"):
        ClickHouseDestination(clickhouse.url("plain")).startup(context())
    assert clickhouse.ask("SELECT name FROM system.tables WHERE database = 'plain'") == []
    client.command("DROP DATABASE plain")
    client.close()


def test_rights_that_are_missing_are_named_with_the_grant(
    clickhouse: ClickHouse, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine of the tests has one user, who may do all: what it answers is changed here."""
    asked = Server.value

    def answered(self: Server, question: str, *, doing: str = "") -> Any:
        return 0 if "CREATE VIEW" in question or "OPTIMIZE" in question else asked(self, question, doing=doing)

    monkeypatch.setattr(Server, "value", answered)
    with pytest.raises(DestinationRightsError) as caught:
        ClickHouseDestination(clickhouse.url(place)).startup(context())
    assert caught.value.hint == f"GRANT CREATE VIEW, OPTIMIZE ON `{place}`.* TO `relay`"
    assert clickhouse.ask(f"SELECT name FROM system.tables WHERE database = '{place}'") == [], "nothing was made"
    monkeypatch.undo()  # as if it had been granted
    with opened(clickhouse.url(place)):
        pass


def test_an_old_server(clickhouse: ClickHouse, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "OLDEST", (99, 1))
    with pytest.raises(DestinationError, match="too old"):
        ClickHouseDestination(clickhouse.url(place)).startup(context())


def test_tuples_on_a_server_that_has_none_that_may_be_null() -> None:
    span = PgType(1, "int4range", kind="range", element=INT4)
    able = preflight.Able(NARROW, has_nullable_tuples=False)
    able.refuse_tuples(ORDERS)
    with pytest.raises(DestinationError, match=r"span of public\.orders"):
        able.refuse_tuples(TableSchema(1, ORDERS.name, (Column("span", span),)))


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("clickhouse_connect"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtraError) as caught:
        ClickHouseDestination("clickhouse://host/db").startup(context())
    assert caught.value.hint == "pip install 'walrelay[clickhouse]'"


def test_the_client_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import sys; from walrelay.destinations.urls import destination_from_url as d; d('clickhouse://host/db');"
        " assert not [m for m in sys.modules if m.startswith(('clickhouse_connect', 'pyspark'))]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_another_database_than_the_one_it_was_is_refused(clickhouse: ClickHouse, place: str) -> None:
    with opened(clickhouse.url(place)) as destination:
        known = destination.identity()
    assert known is not None and "s3cret" not in known.place
    with opened(clickhouse.url(place), expected=known) as destination:
        assert destination.identity() == known
    with pytest.raises(OtherDestinationError), opened(clickhouse.url(place), expected=Identity("x", "elsewhere")):
        pass


def test_a_table_that_is_somebody_elses(clickhouse: ClickHouse, place: str) -> None:
    client = clickhouse.client()
    client.command(f"CREATE TABLE {place}.orders (id Int32) ENGINE = MergeTree ORDER BY id")
    with opened(clickhouse.url(place)) as destination:
        with pytest.raises(NameClashError, match="walrelay has not made it") as caught:
            destination.drop_table_for_copy(ORDERS)
        assert caught.value.context["table_id"] == ORDERS.id
        client.command(f"RENAME TABLE {place}.orders TO {place}.mine")
        empty_copy(destination)
    with (
        opened(clickhouse.url(place), id_="other", pipeline_name="other-2") as destination,
        pytest.raises(OtherPipelineError, match="shop-1"),
    ):
        destination.drop_table_for_copy(ORDERS)
    with opened(clickhouse.url(place), source_id="two/1") as destination, pytest.raises(OtherSourceError) as other:
        destination.drop_table_for_copy(ORDERS)
    assert other.value.hint.endswith("DROP VIEW orders")
    client.close()


def empty_copy(destination: ClickHouseDestination) -> None:
    from walrelay.changes.rows import TableRows

    destination.drop_table_for_copy(ORDERS)
    assert destination.write_table_rows(ORDERS, TableRows(ORDERS, (), destination.dialect.target, 0)).durable


def test_a_pipeline_never_removes_what_another_has_under_way(clickhouse: ClickHouse, place: str) -> None:
    client = clickhouse.client()
    with opened(clickhouse.url(place)) as destination:
        empty_copy(destination)
    tag = clickhouse.ask(f"SELECT name FROM system.tables WHERE database = '{place}' AND name LIKE '%16400%'")
    prefix = tag[0][0].rsplit("_", 2)[0]
    for name in (f"{prefix}_16400_left", "_walrelay_0123456789ab_16400_copying"):
        client.command(f"CREATE TABLE {place}.{name} (id Int32) ENGINE = MergeTree ORDER BY id")
    with opened(clickhouse.url(place)):
        left = clickhouse.ask(f"SELECT name FROM system.tables WHERE database = '{place}' AND name LIKE '%16400%'")
    assert sorted(left) == sorted([*tag, ("_walrelay_0123456789ab_16400_copying",)])
    client.close()


@pytest.mark.parametrize(
    "schema, name, shown",
    [
        ("public", "orders", "orders"),
        ("public", "Two Words", "Two Words"),
        ("sales", "orders", "sales.orders"),
        ("public", "sales.orders", 'public."sales.orders"'),
        ("a.b", "c", '"a.b".c'),
        ("a", "b.c", 'a."b.c"'),
        ("public", 'q"', 'public."q"""'),
    ],
)
def test_names_of_other_schemas_are_told_apart(schema: str, name: str, shown: str) -> None:
    assert view_name(TableName(schema, name)) == shown


@pytest.mark.parametrize(
    "name, columns, message",
    [
        ("_walrelay_progress", (), "walrelay's own"),
        ("ä" * 63, (), "too long"),
        ("tagged", (Column("tags", TEXTS), Column("tags_is_null", TEXT)), "tags_is_null"),
    ],
)
def test_names_that_cannot_be_had_are_refused(name: str, columns: tuple[Column, ...], message: str) -> None:
    with pytest.raises(NameClashError, match=message):
        refuse_names(TableSchema(1, TableName("public", name), columns), marks=True)


def test_a_server_that_went_away_comes_back_with_what_it_had(tmp_path: Any) -> None:
    from tests.warehouse.clickhouse_kit import running

    with running(tmp_path / "server") as server:
        place = server.create_database()
        with opened(server.url(place)) as destination:
            empty_copy(destination)
            server.stop()
            with pytest.raises(DestinationUnreachableError) as caught:
                empty_copy(destination)
            assert caught.value.retryable and "table" not in caught.value.context
            server.start()
            assert server.rows(place, "orders") == []
            empty_copy(destination)
        server.drop_database(place)
