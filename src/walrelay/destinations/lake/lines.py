"""Small files of ours in a lake: a line for each table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from walrelay.model.names import TableId


def read_lines(path: Path) -> dict[TableId, Any]:
    """None of them when there is no such file."""
    with suppress(FileNotFoundError, ValueError):
        return {int(table): line for table, line in json.loads(path.read_text()).items()}
    return {}


def write_lines(path: Path, lines: Mapping[TableId, Any]) -> None:
    """By one thread at a time. A line that is lost with the machine is no harm, one that is half written would be."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({str(table): line for table, line in lines.items()}))
    new.replace(path)
