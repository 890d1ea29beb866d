"""In which form walrelay keeps what it knows of a destination, in the destination itself.

Each destination has an id of its own, which is read before anything is written there, and it says the form: ids of the
first one are plain, a later one has its number before a colon.
"""

from __future__ import annotations

from typing import Final

from walrelay.errors import DestinationNewerError

FORMAT: Final = 1
"""To be raised when an older walrelay would misread what this one writes. What it can leave aside needs no new one."""


def readable(id_: str, where: str) -> str:
    """The id that a destination has given, when this version can read all that comes with it."""
    before, colon, _ = id_.partition(":")
    written = int(before) if colon and before.isascii() and before.isdigit() else FORMAT
    if written > FORMAT:
        raise DestinationNewerError(
            f"{where} is of format {written}; this walrelay knows formats up to {FORMAT}",
            context={"found": written, "known": FORMAT},
        )
    return id_
