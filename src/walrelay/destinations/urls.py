"""Destinations by URL. Which package knows a scheme is said by entry points of the group `walrelay.destinations`, ours
and those of others alike: a name is a scheme, and what it points to makes a destination of a URL."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from walrelay.errors import ConfigError, UnknownDestinationError

if TYPE_CHECKING:
    from walrelay.destinations.base import Destination

GROUP = "walrelay.destinations"


def destination_from_url(url: str, lane: str | None = None) -> Destination:
    """`duckdb:///relative`, `duckdb:////absolute`, `delta:///lake`, `iceberg:///lake`, `stdout:`, `null:`, and what
    installed packages add. `lane`: by what it is to take changes, where it has a choice."""
    scheme = check_scheme(url)
    make = entry_points(group=GROUP)[scheme].load()
    made: Destination = make(url)
    if lane is None or made.capabilities.lane == lane:
        return made
    try:
        other: Destination = make(f"{url}{'&' if '?' in url else '?'}{urlencode({'lane': lane})}")
    except ConfigError as error:
        raise ConfigError(
            f"{scheme} takes changes by the lane {made.capabilities.lane}, not {lane}", hint="Leave out --lane."
        ) from error
    return other


def check_scheme(url: str) -> str:
    """The URL's scheme, if some installed package knows it; nothing of that package is loaded."""
    scheme, colon, _ = url.partition(":")
    known = {one.name for one in entry_points(group=GROUP)}
    if scheme not in known:
        # What is no URL may be anything, also a secret.
        raise UnknownDestinationError(
            f"no such destination: {scheme if colon else '(no scheme)'}; there are {', '.join(sorted(known))}"
        )
    return scheme


def path_in(url: str, kind: str, example: str) -> str:
    """`scheme:///relative` is relative to here, `scheme:////absolute` is not."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path == "/":
        raise ConfigError(
            f"a {kind} destination needs a path",
            hint=f"{parts.scheme}:///{example} is relative to here, {parts.scheme}:////data/{example} is absolute.",
        )
    return path[1:]


def options_in(url: str, *known: str) -> dict[str, str]:
    """What stands behind the question mark."""
    options = dict(parse_qsl(urlsplit(url).query))
    if unknown := sorted(set(options) - set(known)):
        takes = f"It takes {' and '.join(known)}." if known else "It takes none."
        raise ConfigError(f"unknown option in the destination: {unknown[0]}", hint=takes)
    return options


def yes_or_no(name: str, said: str) -> bool:
    if said not in ("yes", "no"):
        raise ConfigError(f"{name} is neither yes nor no: {said}", hint=f"Write {name}=yes, or leave it out.")
    return said == "yes"


def refuse_rest(url: str) -> None:
    """For a scheme that says it all."""
    scheme, _, rest = url.partition(":")
    if rest.strip("/"):
        raise UnknownDestinationError(f"{scheme}: takes neither a path nor options", hint=f"Give {scheme}: alone.")
