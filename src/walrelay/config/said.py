"""What was said of a key, and where: in a line of a file, by a variable of the environment, by an option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Path = tuple[str | int, ...]
"""Of a key: its section, itself, and what is in it. Numbers count the entries of a list, from 0."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from. `line` is 0 outside of files."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name} line {self.line}" if self.line else self.name


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Said:
    """A value as it was said: a scalar, or more of these by key or in order."""

    value: Any
    origin: Origin
    is_referenced: bool = False
    """Whether the text has come, in part, from a variable or a file that it names: it may be a secret."""

    def plain(self) -> Any:
        """The value alone."""
        match self.value:
            case dict():
                return {key: one.plain() for key, one in self.value.items()}
            case list():
                return [one.plain() for one in self.value]
            case _:
                return self.value

    def at(self, path: Path) -> Said | None:
        """What was said of the key; None for nothing."""
        found: Said | None = self
        for step in path:
            found = None if found is None else found._step(step)
        return found

    def nearest(self, path: Path) -> Said:
        """What was said of the key, or of the innermost one around it that was said."""
        found = self
        for step in path:
            inner = found._step(step)
            if inner is None:
                return found
            found = inner
        return found

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Said]]:
        """Everything in it that is not made of keys."""
        if isinstance(self.value, dict):
            for key, one in self.value.items():
                yield from one.leaves((*path, key))
        else:
            yield path, self

    def _step(self, step: str | int) -> Said | None:
        match self.value:
            case dict():
                return self.value.get(step)
            case list() if isinstance(step, int) and step < len(self.value):
                found: Said = self.value[step]
                return found
            case _:
                return None


def as_said(value: Any, origin: Origin) -> Said:
    """A plain value, all of which was said in one place."""
    match value:
        case dict():
            return Said({key: as_said(one, origin) for key, one in value.items()}, origin)
        case list():
            return Said([as_said(one, origin) for one in value], origin)
        case _:
            return Said(value, origin)


def laid_over(below: Said, above: Said) -> Said:
    """Both, key by key; what `above` says wins, and comes later in order. Lists are not mixed."""
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    made = dict(below.value)
    for key, one in above.value.items():
        before = made.pop(key, None)
        made[key] = one if before is None else laid_over(before, one)
    # What is missing in both is missing in a file, where there is one.
    return replace(above if above.origin.line or not below.origin.line else below, value=made)


def nested(values: Mapping[Path, Said], origin: Origin) -> Said:
    """Values by their paths as one tree."""
    made = Said({}, origin)
    for path, one in values.items():
        inner = one
        for step in reversed(path):
            inner = Said({step: inner}, one.origin)
        made = laid_over(made, inner)
    return made


def written(path: Path) -> str:
    """A path as people write it: `source.url`, `tables."public.*".mask`."""
    steps = []
    for step in path:
        if isinstance(step, int):
            steps.append(str(step + 1))
        else:
            steps.append(f'"{step}"' if "." in step else step)
    return ".".join(steps)
