"""The chain of entries that says which data files the log consists of.

An entry is immutable: a name stands for one content for ever, so what was read once need not be read again.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast, get_args

from walrelay.log.failures import LogDamagedError, LogGoneError
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

MANIFEST: Final = "manifest"
DATA: Final = "data"
FIRST_SEQUENCE: Final = 1
"""The first segment's number. A log whose oldest entry begins later has lost what was before it to retention."""

_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.json")
_LSN: Final = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")
_FILE: Final = re.compile(r"\d{20}-(?:\d{20}-)?(\d{1,19})-(?:messages|quarantine|\d+-\d+)\.parquet")

T = TypeVar("T")
FileKind = Literal["", "quarantine"]
"""Empty: changes of a table, or messages. `quarantine`: changes of any tables that could not be decoded."""
Treated = dict[str, dict[str, int]]
"""How many values were treated by policy, by table and kind."""
Body = bytes
"""The content of a file (`bytes` is a field below)."""


def data_path(first: int, last: int, epoch: int, table: TableId | None, version: int = 0, kind: FileKind = "") -> str:
    """Where a segment's changes of one table and schema version go; `table` None is the logical messages, or what
    `kind` says.

    A segment is named by its number alone, a merged one (`last` > `first`) by both ends, so that it never takes the
    name of its first part. The writer's epoch keeps a dead writer's leftovers apart.
    """
    numbers = f"{first:020d}" if first == last else f"{first:020d}-{last:020d}"
    what = kind or ("messages" if table is None else f"{table}-{version}")
    return f"{DATA}/{numbers}-{epoch}-{what}.parquet"


def epoch_of(name: str) -> int | None:
    """The epoch in a data file's name, or None when it is no name of a data file."""
    match = _FILE.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: the changes of one table in one schema version, or (`table` None) the logical messages, or those
    changes that could not be decoded (`kind`)."""

    path: str
    table: TableId | None
    name: str
    """The table's, as `str(TableName)` prints it; empty for messages."""
    version: int
    rows: int
    bytes: int
    first_lsn: Lsn
    """The commit LSN of the first change in it; `last_lsn` that of the last one."""
    last_lsn: Lsn
    kind: FileKind = ""


@dataclass(frozen=True, slots=True)
class SentPart:
    """A partition whose rows are sent under its root's name, as the stream says before the first of them, and again
    when it was altered."""

    leaf: TableId
    root: TableId
    lsn: Lsn
    """The commit of the transaction that said so."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One segment, or several merged: the transactions whose end LSN is after `start_lsn` and up to `end_lsn`."""

    first: int
    """Sequence numbers, both ends included."""
    last: int
    start_lsn: Lsn
    end_lsn: Lsn
    transactions: int
    rows: int
    bytes: int
    commit_time: int
    """Of the last commit, in microseconds since 1970."""
    created_at: float
    """When it was published, in seconds since 1970; of a merged entry, when its newest part was."""
    files: tuple[DataFile, ...]
    treated: Treated = field(default_factory=dict, hash=False)
    """What was treated by policy when it was captured, from the log's beginning to the end of this entry."""
    parts: tuple[SentPart, ...] = ()
    """The partitions that are named in it."""

    @property
    def name(self) -> str:
        """Its file name in the manifest."""
        return f"{self.first:020d}-{self.last:020d}.json"

    @property
    def path(self) -> str:
        return f"{MANIFEST}/{self.name}"

    def to_json(self) -> Body:
        body: dict[str, object] = {
            "first": self.first,
            "last": self.last,
            "start_lsn": str(self.start_lsn),
            "end_lsn": str(self.end_lsn),
            "transactions": self.transactions,
            "rows": self.rows,
            "bytes": self.bytes,
            "commit_time": self.commit_time,
            "created_at": self.created_at,
            "files": [_file_to_json(file) for file in self.files],
        }
        if self.treated:
            body["treated"] = self.treated
        if self.parts:
            body["parts"] = [[one.leaf, one.root, str(one.lsn)] for one in self.parts]
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: Body, name: str) -> Entry:
        """The entry in the file `name`. Raises LogDamagedError unless it is exactly what `to_json` writes."""
        try:
            fields = _Fields(json.loads(body))
            entry = cls(
                first=fields.count("first"),
                last=fields.count("last"),
                start_lsn=fields.lsn("start_lsn"),
                end_lsn=fields.lsn("end_lsn"),
                transactions=fields.count("transactions"),
                rows=fields.count("rows"),
                bytes=fields.count("bytes"),
                commit_time=fields.take("commit_time", int),
                created_at=float(fields.take("created_at", (int, float))),
                files=tuple(_file_from_json(file) for file in fields.take("files", list)),
                treated=_treated_from_json(fields.optional("treated", {})),
                parts=tuple(_part_from_json(part) for part in fields.optional("parts", list[object]())),
            )
            fields.end()
            _check(entry, name)
        except (ValueError, RecursionError) as error:
            raise LogDamagedError(f"the log's entry {MANIFEST}/{name} is damaged: {error}") from error
        return entry


def cover(entries: Iterable[Entry]) -> list[Entry]:
    """The widest entries that form the chain, in its order. Raises LogDamagedError when the chain has a hole."""
    chain: list[Entry] = []
    end = 0
    for entry in sorted(entries, key=lambda entry: (entry.first, -entry.last)):
        end = max(end, entry.last)
        if chain and entry.first <= chain[-1].last:
            continue
        if chain and entry.first > chain[-1].last + 1:
            raise LogDamagedError(f"the log has a hole: nothing between {chain[-1].name} and {entry.name}")
        if chain and entry.start_lsn != chain[-1].end_lsn:
            raise LogDamagedError(
                f"the log's entry {entry.name} begins at {entry.start_lsn}, "
                f"but {chain[-1].name} before it ends at {chain[-1].end_lsn}"
            )
        chain.append(entry)
    if chain and chain[-1].last != end:
        raise LogDamagedError(f"the log has a hole: nothing after {chain[-1].name}, but an entry that ends with {end}")
    return chain


class Manifest:
    """The entries of one log; reads each only once. Usable from several threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def entries(self) -> tuple[Entry, ...]:
        """The chain as it is now."""
        return self.look()[0]

    def look(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """The chain as it is now, and the entries that merged ones in it have replaced but that are still there.

        A listing is not an instant: an entry published, merged or removed meanwhile can make it look torn. So a hole
        is believed only when a second listing is the same.
        """
        torn: list[str] | None = None
        with self._lock:
            while True:
                names = [n for n in self._storage.list(MANIFEST) if n in self._known or _NAME.fullmatch(n)]
                try:
                    self._learn(names)
                    chain = cover(self._known.values())
                except (FileNotFoundError, LogDamagedError) as error:
                    if names != torn:
                        torn = names
                        continue
                    if isinstance(error, FileNotFoundError):
                        raise LogDamagedError("an entry of the log is listed but cannot be read") from error
                    raise
                taken = {entry.name for entry in chain}
                return tuple(chain), tuple(self._known[name] for name in names if name not in taken)

    def publish(self, entry: Entry) -> None:
        """Make the entry, and with it its files, part of the log. Its files must be durable already."""
        self._storage.put(entry.path, entry.to_json())
        with self._lock:
            self._known[entry.name] = entry

    def between(self, after: Lsn, to: Lsn) -> list[Entry]:
        """The entries with the changes of transactions with `after` < end LSN ≤ `to`, in order.

        The first and the last may hold more than that. Raises LogGoneError when retention has removed some of them.
        """
        chain = self.entries()
        if chain and after < chain[0].start_lsn and chain[0].first > FIRST_SEQUENCE:
            raise LogGoneError(
                f"changes after {after} are wanted, but the log now begins at {chain[0].start_lsn}",
                context={"wanted": str(after), "oldest": str(chain[0].start_lsn)},
            )
        return [entry for entry in chain if entry.files and entry.end_lsn > after and entry.start_lsn < to]

    def _learn(self, names: list[str]) -> None:
        """Make what is known exactly the entries of these names."""
        for name in names:
            if name not in self._known:
                self._known[name] = Entry.from_json(self._storage.read(f"{MANIFEST}/{name}"), name)
        for name in self._known.keys() - set(names):
            del self._known[name]


class _Fields:
    """A JSON object that is taken apart field by field, each of its expected type, until none is left."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise ValueError("not a JSON object")
        self._rest: dict[str, Any] = dict(body)

    def take(self, key: str, kind: type[T] | tuple[type[T], ...]) -> T:
        if key not in self._rest:
            raise ValueError(f"it has no {key}")
        value = self._rest.pop(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{key} is of a wrong type")
        return value

    def count(self, key: str) -> int:
        value = self.take(key, int)
        if value < 0:
            raise ValueError(f"{key} is negative")
        return value

    def lsn(self, key: str) -> Lsn:
        text = self.take(key, str)
        if not _LSN.fullmatch(text):
            raise ValueError(f"{key} is no LSN")
        return Lsn.parse(text)

    def optional(self, key: str, default: T) -> T:
        """A field that older logs do not have."""
        return self.take(key, type(default)) if key in self._rest else default

    def nullable(self, key: str, take: Callable[[str], T]) -> T | None:
        if key in self._rest and self._rest[key] is None:
            del self._rest[key]
            return None
        return take(key)

    def end(self) -> None:
        if self._rest:
            raise ValueError(f"it has unknown fields: {', '.join(sorted(self._rest))}")


def _treated_from_json(body: dict[str, Any]) -> Treated:
    for counts in body.values():
        fields = _Fields(counts)
        for kind in counts:
            fields.count(kind)
    return body


def _part_from_json(body: object) -> SentPart:
    if not isinstance(body, list):
        raise ValueError("a partition is no list")
    fields = _Fields(dict(zip(("leaf", "root", "lsn"), body, strict=True)))
    return SentPart(fields.count("leaf"), fields.count("root"), fields.lsn("lsn"))


def _file_to_json(file: DataFile) -> dict[str, object]:
    kind = {"kind": file.kind} if file.kind else {}
    return {
        "path": file.path,
        "table": file.table,
        "name": file.name,
        "version": file.version,
        "rows": file.rows,
        "bytes": file.bytes,
        "first_lsn": str(file.first_lsn),
        "last_lsn": str(file.last_lsn),
        **kind,
    }


def _file_from_json(body: object) -> DataFile:
    fields = _Fields(body)
    file = DataFile(
        path=fields.take("path", str),
        table=fields.nullable("table", fields.count),
        name=fields.take("name", str),
        version=fields.count("version"),
        rows=fields.count("rows"),
        bytes=fields.count("bytes"),
        first_lsn=fields.lsn("first_lsn"),
        last_lsn=fields.lsn("last_lsn"),
        kind=_kind(fields.optional("kind", "")),
    )
    fields.end()
    directory, _, name = file.path.partition("/")
    if directory != DATA or not name or "/" in name or name.startswith("."):
        raise ValueError("the path of a file is not in data/")
    if file.first_lsn > file.last_lsn:
        raise ValueError("a file's LSNs are in the wrong order")
    if file.kind and file.table is not None:
        raise ValueError("a file of a table has a kind of its own")
    return file


def _kind(word: str) -> FileKind:
    if word not in get_args(FileKind):
        raise ValueError(f"a file of an unknown kind: {word}")
    return cast(FileKind, word)


def _check(entry: Entry, name: str) -> None:
    if entry.name != name:
        raise ValueError(f"it says that it is {entry.name}")
    if not FIRST_SEQUENCE <= entry.first <= entry.last:
        raise ValueError("its sequence numbers are in the wrong order")
    if entry.start_lsn > entry.end_lsn:
        raise ValueError("its LSNs are in the wrong order")
    if sum(file.rows for file in entry.files) != entry.rows or sum(file.bytes for file in entry.files) != entry.bytes:
        raise ValueError("its rows or bytes are not those of its files")
