"""Destination URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from walrelay.errors import ConfigError, UnknownDestinationError

if TYPE_CHECKING:
    from walrelay.destinations.base import Destination


def destination_from_url(url: str) -> Destination:
    """`duckdb:///relative`, `duckdb:////absolute`, `delta:///relative`, `iceberg:///relative`, `stdout:`, `null:`."""
    scheme, _, rest = url.partition(":")
    match scheme:
        case "duckdb":
            return _duckdb(url)
        case "delta":
            return _delta(url)
        case "iceberg":
            return _iceberg(url)
        case "stdout" if not rest.strip("/"):
            from walrelay.destinations.stdout import StdoutDestination

            return StdoutDestination()
        case "null" if not rest.strip("/"):
            from walrelay.destinations.null import NullDestination

            return NullDestination()
        case _:
            raise UnknownDestinationError(f"no such destination: {scheme or url}")


def _path(url: str, kind: str, example: str) -> str:
    """`scheme:///relative` is relative to here, `scheme:////absolute` is not."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path == "/":
        raise ConfigError(
            f"a {kind} destination needs a path",
            hint=f"{parts.scheme}:///{example} is relative to here, {parts.scheme}:////data/{example} is absolute.",
        )
    return path[1:]


def _options(url: str, *known: str) -> dict[str, str]:
    """What stands behind the question mark."""
    options = dict(parse_qsl(urlsplit(url).query))
    if unknown := sorted(set(options) - set(known)):
        takes = f"It takes {' and '.join(known)}." if known else "It takes none."
        raise ConfigError(f"unknown option in the destination: {unknown[0]}", hint=takes)
    return options


def _delta(url: str) -> Destination:
    from walrelay.destinations.delta.destination import DeltaDestination

    _options(url)
    return DeltaDestination(_path(url, "Delta", "lake"))


def _iceberg(url: str) -> Destination:
    from walrelay.destinations.iceberg.destination import IcebergDestination

    version = _options(url, "format_version").get("format_version", "3")
    return IcebergDestination(_path(url, "Iceberg", "lake"), format_version=int(version) if version.isdigit() else 0)


def _duckdb(url: str) -> Destination:
    from walrelay.destinations.duckdb.destination import DuckDBDestination

    path, options = _path(url, "DuckDB", "out.duckdb"), _options(url, "memory_limit", "threads")
    threads = int(options["threads"]) if options.get("threads", "").isdigit() else None
    return DuckDBDestination(path, memory_limit=options.get("memory_limit"), threads=threads)
