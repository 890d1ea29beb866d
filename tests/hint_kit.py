"""What the tests share that follow hints: an error of a code that must come, and what its hint says, word for word.

In a hint a statement ends with a semicolon, and a command stands between backticks; `…` is the reader's to fill in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from walrelay.cli.app import app
from walrelay.errors import WalrelayError, from_text

_STATEMENT = re.compile(r"\b(?:ALTER|CREATE|DROP|GRANT|SELECT) [^;`]*;")
_COMMAND = re.compile(r"`([^`]+)`")


class Told:
    """What a refusal said. Empty until it came."""

    message = ""
    hint = ""

    def statements(self) -> list[str]:
        return _STATEMENT.findall(self.hint)

    def statement(self) -> str:
        (only,) = self.statements()
        return only

    def commands(self) -> list[str]:
        return _COMMAND.findall(self.hint)


@contextmanager
def refused(code: str) -> Iterator[Told]:
    """The block must be refused with this code, and a hint."""
    told = Told()
    with pytest.raises(Exception) as caught:
        yield told
    error = caught.value if isinstance(caught.value, WalrelayError) else from_text(str(caught.value))
    assert error is not None, repr(caught.value)
    assert error.code == code, str(error)
    assert error.hint, str(error)
    told.message, told.hint = error.message, error.hint


def walrelay(*arguments: object) -> str:
    """What the command prints; raises the error that it would print."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def execute(url: str, *statements: str) -> list[Any]:
    """Each in a transaction of its own, flushed; the rows of the last one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        rows: list[Any] = []
        for one in statements:
            cursor = connection.execute(one)  # type: ignore[call-overload]
            rows = cursor.fetchall() if cursor.description is not None else []
    return rows
