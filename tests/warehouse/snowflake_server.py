"""Runs fakesnow's server, in its own environment: `python snowflake_server.py PORT`. Not a test."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from string import Template
from typing import Any


def with_quotes(insert: Callable[..., str]) -> Callable[..., str]:
    """fakesnow writes names into a statement of its own as they are, also those with a quote in them."""

    def quoting(catalog: str, schema: str, table: str, lengths: list[tuple[str, int]]) -> str:
        return insert(catalog, schema, _quoted(table), [(_quoted(name), size) for name, size in lengths])

    return quoting


class Quoting(Template):
    """The same for what it answers."""

    def substitute(self, *given: Any, **names: Any) -> str:
        return super().substitute(*given, **{name: _quoted(str(value)) for name, value in names.items()})


def whole(precise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """fakesnow makes a BIGINT of NUMBER(38, 0), which holds half as many digits."""

    def leaving(expression: Any) -> Any:
        return expression if getattr(expression, "expressions", None) else precise(expression)

    return leaving


def _quoted(name: str) -> str:
    return name.replace("'", "''")


if __name__ == "__main__":
    serve: Any = importlib.import_module("fakesnow").server
    names: Any = importlib.import_module("fakesnow.info_schema")
    names.insert_text_lengths_sql = with_quotes(names.insert_text_lengths_sql)
    answers: Any = importlib.import_module("fakesnow.cursor")
    for name, found in list(vars(answers).items()):
        if isinstance(found, Template):
            setattr(answers, name, Quoting(found.template))
    transforms: Any = importlib.import_module("fakesnow.transforms")
    transforms.integer_precision = whole(transforms.integer_precision)
    # A schema that is not there is not made by who asks for it.
    importlib.import_module("fakesnow.server").shared_fs.create_schema_on_connect = False
    with serve(port=int(sys.argv[1]), host="127.0.0.1"):
        threading.Event().wait()
