"""The endpoint over real HTTP: codes, bodies, and clients that misbehave."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry_kit import look, status, table
from walrelay.telemetry import server
from walrelay.telemetry.exposition import CONTENT_TYPE
from walrelay.telemetry.failures import ListenAddressError
from walrelay.telemetry.look import Look


class Served:
    """A server whose last look a test may change."""

    def __init__(self, url: str, address: tuple[str, int]) -> None:
        self.url = url
        self.address = address
        self.look: Look | None = None

    def get(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        request = urllib.request.Request(self.url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def served() -> Iterator[Served]:
    made: list[Served] = []
    with server.serving("127.0.0.1", 0, lambda: made[0].look if made else None) as address:
        made.append(Served(f"http://{address[0]}:{address[1]}", address))
        yield made[0]


def test_each_path_answers_with_its_code(served: Served) -> None:
    assert served.get("/metrics")[:2] == (200, CONTENT_TYPE)
    assert served.get("/health")[0] == 200 and served.get("/ready")[0] == 503
    served.look = look(status(table("public.t")))
    assert served.get("/health")[:2] == served.get("/ready")[:2] == (200, "application/json")
    names = {family.name for family in text_string_to_metric_families(served.get("/metrics")[2])}
    assert {"walrelay_lag_seconds", "walrelay_changes", "walrelay_batch_duration_seconds"} <= names
    served.look = look(status(table("public.t", "errored", "source.rights")))
    code, _, body = served.get("/ready?x=1")
    assert code == 503 and json.loads(body)["reasons"][0]["code"] == "source.rights"
    assert served.get("/nothing")[0] == 404 and "/metrics" in served.get("/")[2]
    assert served.get("/ready", "HEAD")[2] == "" and served.get("/ready", "POST")[0] == 501


def test_what_may_have_become_wrong_is_not_served(served: Served) -> None:
    served.look = look(status(table("public.t")), at=1_000_000.0)
    text = served.get("/metrics")[2]
    assert "walrelay_look_time_seconds" in text and "walrelay_lag_seconds{" not in text


def test_clients_that_say_nothing_keep_nobody_else_from_an_answer(served: Served) -> None:
    silent = [socket.create_connection(served.address) for _ in range(server.AT_A_TIME - 2)]
    assert served.get("/health")[0] == 200
    for one in silent:
        one.close()


def test_a_client_too_many_is_hung_up_on(served: Served) -> None:
    silent = [socket.create_connection(served.address) for _ in range(server.AT_A_TIME)]
    extra = socket.create_connection(served.address)
    extra.settimeout(60)
    assert extra.recv(1) == b""
    for one in [*silent, extra]:
        one.close()


def test_an_address_that_is_taken_is_refused_by_name_and_another_one_is_not(served: Served) -> None:
    with (
        pytest.raises(ListenAddressError, match=str(served.address[1])) as caught,
        server.serving(*served.address, lambda: None),
    ):
        raise AssertionError("two servers on one address")
    assert "--metrics HOST:PORT" in caught.value.hint
    with server.serving("127.0.0.1", 0, lambda: None) as another:
        assert another != served.address
