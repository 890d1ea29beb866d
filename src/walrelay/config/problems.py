"""What is wrong with a configuration: which key, where it was said, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from walrelay.config.said import Origin, Path, written
from walrelay.errors import ConfigError

_LONGEST = 20
"""Problems in one message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `what` never repeats a value, which may be a secret."""

    path: Path
    origin: Origin
    what: str
    hint: str

    def __str__(self) -> str:
        key = written(self.path)
        return f"{key}, {self.origin}: {self.what}" if key else f"{self.origin}: {self.what}"

    def to_json(self) -> dict[str, Any]:
        return {
            "key": written(self.path),
            "from": self.origin.name,
            "line": self.origin.line or None,
            "message": self.what,
            "hint": self.hint,
        }


class ProblemsError(Exception):
    """Problems, on their way to whoever collects them."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def refusal(problems: Sequence[Problem]) -> ConfigError:
    """The error that names them all."""
    context = {"problems": [problem.to_json() for problem in problems]}
    first = problems[0]
    if len(problems) == 1:
        return ConfigError(str(first), hint=first.hint, context=context)
    lines = [f"  {problem}" for problem in problems[:_LONGEST]]
    if len(problems) > _LONGEST:
        lines.append(f"  … and {len(problems) - _LONGEST} more")
    said = "\n".join([f"{len(problems)} settings are wrong", *lines])
    return ConfigError(said, hint=f"Of the first: {first.hint}", context=context)


def nearest(word: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """`; did you mean …?`, where something that is known is like the word."""
    found = get_close_matches(word, known, n=1, cutoff=cutoff) or get_close_matches(
        word.lower(), known, n=1, cutoff=cutoff
    )
    return f"; did you mean {found[0]}?" if found else ""
