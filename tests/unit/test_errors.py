"""Errors survive the ways they must travel."""

from __future__ import annotations

import pickle

import pytest

from walrelay import errors
from walrelay.errors import BadBytesError, WalrelayError, from_text


def all_kinds(root: type[WalrelayError] = WalrelayError) -> list[type[WalrelayError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in all_kinds(child))]


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_sparks_text(kind: type[WalrelayError]) -> None:
    error = kind("it broke", hint="mend it", context={"table": "t"})
    for copy in (
        pickle.loads(pickle.dumps(error)),
        from_text(f"Traceback …\n  RuntimeError: {error.to_text()}\n\tat org.x"),
    ):
        assert type(copy) is kind
        assert (copy.message, copy.hint, copy.context["table"]) == (error.message, error.hint, "t")


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in all_kinds()]
    assert len(codes) == len(set(codes))


def test_bad_bytes_keep_position_and_reason() -> None:
    copy = from_text(BadBytesError("too short", position=17).to_text())
    assert isinstance(copy, BadBytesError)
    assert (copy.position, copy.reason) == (17, "too short")


def test_text_without_an_error_gives_none() -> None:
    assert from_text("java.lang.OutOfMemoryError") is None
    assert from_text("walrelay-error:{not json") is None
    assert errors.from_text("walrelay-error:{}x") is None
