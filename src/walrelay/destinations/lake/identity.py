"""Which lake it is, by its own word."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from walrelay.destinations.format import readable
from walrelay.errors import DestinationNotWritableError


def lake_id(own: Path) -> str:
    """The id in the lake's own directory, which is made if need be."""
    path = own / "lake.json"
    try:
        own.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            new = path.with_suffix(f".{uuid4().hex}")
            new.write_text(json.dumps({"id": uuid4().hex}))
            with suppress(FileExistsError):
                os.link(new, path)
            new.unlink()
        return readable(str(json.loads(path.read_text())["id"]), str(own.parent))
    except OSError as error:
        raise DestinationNotWritableError(f"cannot write to {own.parent}: {error.strerror}") from error
