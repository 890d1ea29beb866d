"""The effective configuration, key by key, with where each value comes from; fit to be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, SecretStr

from walrelay.config.keys import all_keys
from walrelay.config.loading import Loaded
from walrelay.config.masking import MASK, is_secret_name, masked_url
from walrelay.config.said import Origin, Path, written


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as it may be seen, and where it was said."""

    path: Path
    value: Any
    origin: Origin

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "from": self.origin.name, "line": self.origin.line or None}


def shown(loaded: Loaded) -> Iterator[Shown]:
    """Every key that holds, in the order of the sections."""
    for key in all_keys():
        value: Any = loaded.config
        for step in key.path:
            value = None if value is None else getattr(value, str(step))
        if key.is_free:
            yield from _inside(loaded, key.path, value)
        elif not (key.path[0] == "destination" and loaded.config.destination is None):
            yield Shown(key.path, _fit(key.path, value), loaded.origin(key.path))


def _inside(loaded: Loaded, path: Path, value: Any) -> Iterator[Shown]:
    """What stands in a section whose keys are the user's own, only where it was said."""
    if value is None:
        return
    said = loaded.said.at(path)
    for inner, one in () if said is None else said.leaves(path):
        is_hidden = one.is_referenced or is_secret_name(str(inner[-1])) or path[0] == "destinations"
        if isinstance(one.value, list):
            yield from (
                Shown((*inner, at), _entry(inner, entry.plain()), entry.origin) for at, entry in enumerate(one.value)
            )
        else:
            yield Shown(inner, MASK if is_hidden else one.value, one.origin)


def _entry(path: Path, value: Any) -> Any:
    """Of a list: a destination, or a column's name."""
    if path[0] == "destinations" and isinstance(value, dict):
        return {name: masked_url(one) if name == "url" else one for name, one in value.items()}
    return value


def _fit(path: Path, value: Any) -> Any:
    match value:
        case SecretStr():
            text = value.get_secret_value()
            return masked_url(text) if path[-1] == "url" else MASK
        case timedelta():
            return time_in_words(value)
        case BaseModel():
            return value.model_dump(mode="json")
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return list(value)
        case _:
            return str(value)


def as_yaml(entries: Iterator[Shown]) -> str:
    """As a file that would say the same, but for what is masked; behind each value where it comes from."""
    lines: list[str] = []
    open_: Path = ()
    for one in entries:
        *around, last = one.path
        for depth in range(len(around)):
            if tuple(around[: depth + 1]) != open_[: depth + 1]:
                lines.append(f"{'  ' * depth}{_key(around[depth])}:")
        open_ = tuple(around)
        name = "-" if isinstance(last, int) else f"{_key(last)}:"
        lines.append(f"{'  ' * len(around)}{name} {_scalar(one.value)}  # {one.origin}")
    return "\n".join(lines) + "\n"


def _key(step: str | int) -> str:
    text = str(step)
    return text if text.replace("_", "").replace(".", "").isalnum() else json.dumps(text, ensure_ascii=False)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and value.replace("_", "").isalnum() and value not in ("null", "true", "false"):
        return value
    return json.dumps(value, ensure_ascii=False)


def time_in_words(value: timedelta) -> str:
    """As a file says it: 30s, 10m, 7d."""
    if value % timedelta(seconds=1):
        return f"{value / timedelta(milliseconds=1):g}ms"
    seconds = int(value.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def as_json(entries: Iterator[Shown]) -> dict[str, Any]:
    return {written(one.path): one.to_json() for one in entries}
