"""Destination URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from walrelay.errors import ConfigError, UnknownDestinationError

if TYPE_CHECKING:
    from walrelay.destinations.base import Destination


def destination_from_url(url: str) -> Destination:
    """`duckdb:///relative`, `duckdb:////absolute`, `stdout:`, `null:`."""
    scheme, _, rest = url.partition(":")
    match scheme:
        case "duckdb":
            return _duckdb(url)
        case "stdout" if not rest.strip("/"):
            from walrelay.destinations.stdout import StdoutDestination

            return StdoutDestination()
        case "null" if not rest.strip("/"):
            from walrelay.destinations.null import NullDestination

            return NullDestination()
        case _:
            raise UnknownDestinationError(f"no such destination: {scheme or url}")


def _duckdb(url: str) -> Destination:
    from walrelay.destinations.duckdb.destination import DuckDBDestination

    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path == "/":
        raise ConfigError(
            "a DuckDB destination needs a path",
            hint="duckdb:///out.duckdb is relative to here, duckdb:////data/out.duckdb is absolute.",
        )
    options = dict(parse_qsl(parts.query))
    unknown = sorted(set(options) - {"memory_limit", "threads"})
    if unknown:
        raise ConfigError(f"unknown option in the destination: {unknown[0]}", hint="It takes memory_limit and threads.")
    threads = int(options["threads"]) if options.get("threads", "").isdigit() else None
    return DuckDBDestination(path[1:], memory_limit=options.get("memory_limit"), threads=threads)
