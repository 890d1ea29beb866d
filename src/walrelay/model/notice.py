"""A line for people that a log can keep as a constant phrase and fields."""

from __future__ import annotations

from typing import Literal, Self

Weight = Literal["info", "warning"]


class Notice(str):
    """Reads as `text`; `event` never varies, and what varies is in `fields`. Neither holds a row value or a secret."""

    __slots__ = ("event", "fields", "weight")

    event: str
    fields: dict[str, object]
    weight: Weight

    def __new__(cls, event: str, text: str, weight: Weight = "info", **fields: object) -> Self:
        made = super().__new__(cls, text)
        made.event, made.fields, made.weight = event, fields, weight
        return made

    @classmethod
    def warning(cls, event: str, text: str, **fields: object) -> Self:
        """Of something that is not as it should be."""
        return cls(event, text, "warning", **fields)


def as_notice(message: str) -> Notice:
    """Itself; or, of a message without fields, which a destination of somebody else's may send, all as one field."""
    return message if isinstance(message, Notice) else Notice("notice", message, message=message)
