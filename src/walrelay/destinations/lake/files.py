"""Landed files that become a table's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from walrelay.changes.rows import LandedFile


def moved_into(directory: Path, landed: LandedFile) -> Path:
    """The file, now in the table's directory."""
    source = Path(landed.path)
    target = directory / f"copy-{source.name}"
    try:
        source.replace(target)
    except OSError:
        shutil.copyfile(source, target)  # another file system
    target.chmod(0o644)  # others may read the table; while it was landing, they might not
    return target
