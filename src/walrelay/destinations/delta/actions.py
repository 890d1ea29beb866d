"""Lines of a Delta table's log, as the protocol has them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from walrelay.destinations.delta.statistics import statistics

if TYPE_CHECKING:
    from walrelay.destinations.delta.table import DeltaFacts


def metadata(facts: DeltaFacts | None, fields: list[dict[str, Any]], properties: Mapping[str, str]) -> dict[str, Any]:
    """Describes a table; one that is there keeps its id."""
    return {
        "id": facts.id if facts is not None else str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": _now(),
    }


def note(what: str, lsn: str) -> dict[str, Any]:
    """By this a commit says, in the table's history, where it comes from."""
    said = {"walrelay": what, "lsn": lsn}
    return {
        "commitInfo": {
            "timestamp": _now(),
            "operation": "WRITE",
            "operationParameters": {},
            "userMetadata": json.dumps(said),
        }
    }


def transaction(app: str, version: int) -> dict[str, Any]:
    """Records how far the application is."""
    return {"txn": {"appId": app, "version": version, "lastUpdated": _now()}}


def added(file: Path) -> dict[str, Any]:
    """A file of the table's directory."""
    found = file.stat()
    return {
        "add": {
            "path": file.name,
            "partitionValues": {},
            "size": found.st_size,
            "modificationTime": int(found.st_mtime * 1000),
            "dataChange": True,
            "stats": statistics(file),
        }
    }


def _now() -> int:
    return int(time.time() * 1000)
