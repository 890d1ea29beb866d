"""The shapes that logged tables have had, each from a commit on (SEMANTICS 17)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from walrelay.log.failures import LogDamagedError
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import PgType, SchemaVersion, TableSchema
from walrelay.model.schema_json import version_from_json, version_to_json

if TYPE_CHECKING:
    from walrelay.wire.pgoutput import Relation

SCHEMAS: Final = "schemas"


def schema_path(table: TableId, version: int) -> str:
    return f"{SCHEMAS}/{table}-{version}.json"


def read_version(storage: Storage, table: TableId, version: int) -> SchemaVersion:
    return _parse(storage, schema_path(table, version))[0]


def read_versions(storage: Storage) -> list[tuple[SchemaVersion, str]]:
    """All versions, by table and number, each with the fingerprint of the message it was made from."""
    found = [_parse(storage, f"{SCHEMAS}/{name}") for name in storage.list(SCHEMAS) if name.endswith(".json")]
    return sorted(found, key=lambda pair: (pair[0].schema.id, pair[0].version))


def _parse(storage: Storage, path: str) -> tuple[SchemaVersion, str]:
    body = storage.read(path)
    try:
        fields = json.loads(body)
        return version_from_json(fields), str(fields["fingerprint"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamagedError(f"{storage.location(path)} is damaged") from error


@dataclass(frozen=True, slots=True)
class Described:
    """What a Relation message means, completed."""

    schema: TableSchema
    doubt: str = ""
    """As in `SchemaVersion`."""


def fingerprint(relation: Relation) -> str:
    return hashlib.sha256(repr(relation).encode()).hexdigest()[:16]


def _is_same(before: SchemaVersion, now: Described) -> bool:
    """A column may have been dropped and added again under its name, a composite type may have gained an attribute: no
    message tells; nor, with FULL, what the key is. How deep arrays are is decided once."""
    facts = (before.doubt, before.schema.primary_key), (now.doubt, now.schema.primary_key)
    return facts[0] == facts[1] and all(
        (one.attnum, _flat(one.type)) == (other.attnum, _flat(other.type))
        for one, other in zip(before.schema.columns, now.schema.columns, strict=True)
    )


def _flat(type_: PgType) -> PgType:
    return replace(type_, dimensions=1, display="")


class SchemaLibrary:
    """The writer's view: finds the version a Relation message means, or makes the next one.

    A new version becomes durable with the first segment that needs it. One that a crash left behind, from after the
    log's head, is forgotten: the stream brings its message again.
    """

    def __init__(self, storage: Storage, head: Lsn) -> None:
        self._storage = storage
        self._latest: dict[TableId, tuple[SchemaVersion, str]] = {}
        self._unsaved: list[tuple[SchemaVersion, str]] = []
        for version, mark in read_versions(storage):
            if version.from_lsn >= head:
                storage.delete(schema_path(version.schema.id, version.version))
            else:
                self._latest[version.schema.id] = (version, mark)

    def version_of(
        self, relation: Relation, commit_lsn: Lsn, describe: Callable[[Relation], Described]
    ) -> SchemaVersion:
        mark = fingerprint(relation)
        latest = self._latest.get(relation.id)
        described = describe(relation)
        if latest is not None and latest[1] == mark and _is_same(latest[0], described):
            return latest[0]
        number = latest[0].version + 1 if latest is not None else 1
        version = SchemaVersion(described.schema, number, commit_lsn, described.doubt)
        self._latest[relation.id] = (version, mark)
        self._unsaved.append((version, mark))
        return version

    def save(self) -> None:
        """Make new versions durable."""
        for version, mark in self._unsaved:
            body = {**version_to_json(version), "fingerprint": mark}
            self._storage.put(schema_path(version.schema.id, version.version), json.dumps(body).encode())
        self._unsaved.clear()
