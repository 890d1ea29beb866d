"""Good replication streams of random tables and transactions, with what is in them and a map of where words stand.

What pgoutput would send: whole transactions, streamed ones in blocks that interleave, savepoints that are rolled back,
truncates, messages, keepalives, notices, tables that change their shape.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.values import Kind

FIRST_TYPE = 20_000
"""The oid of the first of `KINDS`; the others follow."""
UNCHANGED = b"unchanged"
Marks = tuple[list[int], list[int]]
"""Where in a message the lengths of fields and the counts of rows stand."""
NO_MARKS: Marks = ([], [])
Image = tuple[bytes | None, ...]
"""A value a column; `UNCHANGED` itself (by identity) for one that was not sent."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A relation as it is for a while; its name tells the shapes of one relation apart."""

    id: int
    name: str
    kinds: tuple[int, ...]
    """Numbers in `KINDS`, one a column."""
    identity: Literal["d", "n", "f", "i"]

    @property
    def columns(self) -> tuple[Kind, ...]:
        return tuple(KINDS[number] for number in self.kinds)

    def message(self) -> bytes:
        made = struct.pack(">I", self.id) + b"public\0" + self.name.encode() + b"\0" + self.identity.encode()
        made += struct.pack(">H", len(self.kinds))
        for place, number in enumerate(self.kinds):
            key = int(place == 0 or self.identity == "f")
            made += struct.pack(">B", key) + f"column {place}\0".encode() + struct.pack(">Ii", FIRST_TYPE + number, -1)
        return made


@dataclass(frozen=True, slots=True)
class Planned:
    """A change as it must come out."""

    shape: Shape
    op: Literal["insert", "update", "delete", "truncate"]
    row: Image | None = None
    old: Image | None = None
    old_kind: Literal["key", "row"] | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction, and where in the stream its last byte is."""

    commit_lsn: int
    end_lsn: int
    time: int
    xid: int
    changes: tuple[Planned, ...]
    end: int


@dataclass
class ChangeStream:
    """The bytes, the places in them that are worth damaging, and what they say."""

    data: bytearray = field(default_factory=bytearray)
    frames: list[int] = field(default_factory=list)
    """Where frames begin."""
    lengths: list[int] = field(default_factory=list)
    """Of fields: where the 32-bit length stands."""
    counts: list[int] = field(default_factory=list)
    """Of rows: where the 16-bit count of fields stands."""
    committed: list[Committed] = field(default_factory=list)
    messages: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    """(where it ends, or its transaction does; prefix; content), of all that must come out."""


@dataclass
class _Streaming:
    """A transaction that is sent while it runs: its blocks, roll-backs and end, one after the other."""

    xid: int
    chunks: list[tuple[str, list[tuple[bytes, Marks]], int]]
    """(kind, messages or nothing, subtransaction)."""
    changes: tuple[Planned, ...]
    messages: list[tuple[bytes, bytes]]
    told: dict[int, Shape]


class _Writer:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.stream = ChangeStream()
        self.lsn = 0x1_0000_0000
        self.xid = rng.choice((700, 2**31 - 3, 2**32 - 60))
        self.shapes = {16_384 + n: self._shape(16_384 + n, 1) for n in range(rng.randint(1, 4))}
        self.told: dict[int, Shape] = {}
        """What the server has said of each relation outside of streamed transactions."""
        self.running: list[_Streaming] = []
        self.versions = 1

    def _shape(self, relation: int, version: int) -> Shape:
        rng = self.rng
        kinds = tuple(rng.randrange(len(KINDS)) for _ in range(rng.choice((0, 1, 2, 3, 5, 8))))
        return Shape(relation, f"t{relation} v{version}", kinds, rng.choice(("d", "d", "n", "f", "i")))

    # ---------------------------------------------------------------------------------------------------------- frames

    def frame(self, message: bytes, marks: Marks = NO_MARKS) -> None:
        stream = self.stream
        stream.frames.append(len(stream.data))
        head = b"d" + struct.pack(">i", 29 + len(message)) + b"w" + struct.pack(">qqq", self.lsn, self.lsn, 7)
        at = len(stream.data) + len(head)
        stream.lengths += [at + mark for mark in marks[0]]
        stream.counts += [at + mark for mark in marks[1]]
        stream.data += head + message

    def keepalive(self) -> None:
        if self.rng.random() < 0.05:
            self.stream.frames.append(len(self.stream.data))
            reply = self.rng.randint(0, 1)
            self.stream.data += b"d" + struct.pack(">icqqb", 22, b"k", self.lsn, 7, reply)
        elif self.rng.random() < 0.02:
            self.stream.data += b"N" + struct.pack(">i", 14) + b"SNOTICE\0\0\0"

    # --------------------------------------------------------------------------------------------------------- changes

    def image(self, shape: Shape, *, unchanged: bool = False) -> Image:
        rng = self.rng

        def value(kind: Kind) -> bytes | None:
            pick = rng.random()
            if pick < 0.1:
                return None
            return UNCHANGED if unchanged and pick < 0.2 else kind.make(rng)

        return tuple(value(kind) for kind in shape.columns)

    def change(self, shape: Shape) -> Planned:
        rng = self.rng
        op = rng.choice(("insert", "insert", "update", "delete")) if shape.identity != "n" else "insert"
        if op == "insert":
            return Planned(shape, "insert", self.image(shape))
        old, kind = None, None
        if op == "delete" or shape.identity == "f" or rng.random() < 0.4:
            old = self.image(shape)
            kind = "row" if shape.identity == "f" else "key"
            if kind == "key":
                old = (*old[:1], *[None] * (len(old) - 1))
        if op == "delete":
            return Planned(shape, "delete", None, old, kind)
        return Planned(shape, "update", self.image(shape, unchanged=True), old, kind)

    def message_of(self, change: Planned, xid: bytes) -> tuple[bytes, Marks]:
        made = bytearray(change.op[0].upper().encode() + xid + struct.pack(">I", change.shape.id))
        marks: Marks = ([], [])
        for mark, image in (("K" if change.old_kind == "key" else "O", change.old), ("N", change.row)):
            if image is None:
                continue
            made += mark.encode()
            marks[1].append(len(made))
            made += struct.pack(">H", len(image))
            for value, kind in zip(image, change.shape.columns, strict=True):
                if value is None or value is UNCHANGED:
                    made += b"n" if value is None else b"u"
                else:
                    made += b"t" if kind.as_text else b"b"
                    marks[0].append(len(made))
                    made += struct.pack(">i", len(value)) + value
        return bytes(made), marks

    def logical(self, *, transactional: bool, xid: bytes = b"") -> tuple[bytes, bytes, bytes]:
        """(message, prefix, content)."""
        rng = self.rng
        prefix, content = rng.choice((b"app", b"")), rng.randbytes(rng.choice((0, 5, 40, 3000)))
        head = b"M" + xid + struct.pack(">Bq", int(transactional), self.lsn + 1)
        return head + prefix + b"\0" + struct.pack(">i", len(content)) + content, prefix, content

    # ---------------------------------------------------------------------------------------------------- transactions

    def whole(self) -> None:
        rng = self.rng
        self.lsn += rng.randint(1, 500)
        self.xid += 1
        commit, end, when, xid = self.lsn, self.lsn + rng.randint(1, 90), rng.randint(-(10**15), 10**15), self.xid
        self.frame(b"B" + struct.pack(">qqI", commit, when, xid & 0xFFFFFFFF))
        if rng.random() < 0.1:
            self.frame(b"O" + struct.pack(">q", 5) + b"elsewhere\0")
        changes: list[Planned] = []
        said: list[tuple[bytes, bytes]] = []
        for _ in range(rng.choice((0, 1, 1, 2, 5, 15))):
            self.keepalive()
            pick = rng.random()
            if pick < 0.06:
                message, prefix, content = self.logical(transactional=True)
                said.append((prefix, content))
                self.frame(message)
            elif pick < 0.12:
                changes += self._truncate()
            else:
                shape = rng.choice(list(self.shapes.values()))
                self._tell(shape)
                changes.append(self.change(shape))
                self.frame(*self.message_of(changes[-1], b""))
        self.keepalive()
        self.frame(b"C" + struct.pack(">bqqq", 0, commit, end, when))
        self._commit(commit, end, when, xid, changes, said)

    def _tell(self, shape: Shape) -> None:
        if self.told.get(shape.id) is not shape:
            self.told[shape.id] = shape
            if any(kind.type.schema == "public" for kind in shape.columns):
                self.frame(b"Y" + struct.pack(">I", FIRST_TYPE) + b"public\0mood\0")
            self.frame(b"R" + shape.message())

    def _truncate(self) -> list[Planned]:
        shapes = self.rng.sample(list(self.shapes.values()), self.rng.randint(1, len(self.shapes)))
        for shape in shapes:
            self._tell(shape)
        self.frame(self.truncate_message(shapes, b""))
        return [Planned(shape, "truncate") for shape in shapes]

    def truncate_message(self, shapes: list[Shape], xid: bytes) -> bytes:
        ids = struct.pack(f">{len(shapes)}I", *(shape.id for shape in shapes))
        return b"T" + xid + struct.pack(">IB", len(shapes), self.rng.randint(0, 3)) + ids

    def _commit(
        self, commit: int, end: int, when: int, xid: int, changes: list[Planned], said: list[tuple[bytes, bytes]]
    ) -> None:
        at = len(self.stream.data)
        made = Committed(commit, end, when, xid & 0xFFFFFFFF, tuple(changes), at)
        self.stream.committed.append(made)
        self.stream.messages += [(at, *one) for one in said]
        self.lsn = end

    # ------------------------------------------------------------------------------------------ streamed transactions

    def begin_streaming(self) -> None:
        """Plan a transaction that is sent in blocks; savepoints of it are kept or rolled back."""
        rng = self.rng
        self.xid += 1
        one = _Streaming(self.xid, [], (), [], {})
        kept: list[Planned] = []
        for _ in range(rng.randint(1, 4)):
            subxid = one.xid
            if rng.random() < 0.5:
                self.xid += 1
                subxid = self.xid
            undone = subxid != one.xid and rng.random() < 0.5
            tag = struct.pack(">I", subxid & 0xFFFFFFFF)
            messages: list[tuple[bytes, Marks]] = []
            made: list[Planned] = []
            for _ in range(rng.choice((0, 1, 2, 6))):
                if rng.random() < 0.08:
                    message, prefix, content = self.logical(transactional=True, xid=tag)
                    messages.append((message, NO_MARKS))
                    one.messages += [] if undone else [(prefix, content)]
                    continue
                shape = rng.choice(list(self.shapes.values()))
                if one.told.get(shape.id) is not shape:
                    one.told[shape.id] = shape
                    messages.append((b"R" + tag + shape.message(), NO_MARKS))
                if rng.random() < 0.08:
                    made.append(Planned(shape, "truncate"))
                    messages.append((self.truncate_message([shape], tag), NO_MARKS))
                else:
                    made.append(self.change(shape))
                    messages.append(self.message_of(made[-1], tag))
            one.chunks.append(("block", messages, subxid))
            if undone:
                one.chunks.append(("undo", [], subxid))
                one.told.clear()  # as pgoutput does: it describes again what it has described in vain
            else:
                kept += made
        one.chunks.append(("undo", [], one.xid) if rng.random() < 0.15 else ("commit", [], one.xid))
        one.changes = tuple(kept)
        self.running.append(one)

    def go_on_streaming(self) -> None:
        """Send the next block, roll-back or commit of one of those that run."""
        rng = self.rng
        one = rng.choice(self.running)
        kind, messages, subxid = one.chunks.pop(0)
        xid, sub = struct.pack(">I", one.xid & 0xFFFFFFFF), struct.pack(">I", subxid & 0xFFFFFFFF)
        if kind == "block":
            self.frame(b"S" + xid + bytes((rng.randint(0, 1),)))
            for message, marks in messages:
                self.keepalive()
                self.frame(message, marks)
            self.frame(b"E")
        elif kind == "undo":
            self.frame(b"A" + xid + sub + rng.choice((b"", bytes(16))))
        else:
            self.lsn += rng.randint(1, 500)
            commit, end, when = self.lsn, self.lsn + rng.randint(1, 90), rng.randint(0, 10**15)
            self.frame(b"c" + xid + struct.pack(">bqqq", 0, commit, end, when))
            self._commit(commit, end, when, one.xid, list(one.changes), one.messages)
            self.told |= one.told
        if not one.chunks:
            self.running.remove(one)

    # ----------------------------------------------------------------------------------------------- between the lines

    def between(self) -> None:
        """A message outside of transactions, or another shape for a relation that nobody is streaming."""
        if self.rng.random() < 0.5:
            message, prefix, content = self.logical(transactional=False)
            self.lsn += 2
            self.frame(message)
            self.stream.messages.append((len(self.stream.data), prefix, content))
        elif not self.running:
            relation = self.rng.choice(list(self.shapes))
            self.versions += 1
            self.shapes[relation] = self._shape(relation, self.versions)


def random_change_stream(rng: Random) -> ChangeStream:
    """Up to four tables and a score of transactions; some of those that are streamed never end."""
    writer = _Writer(rng)
    for _ in range(rng.choice((1, 2, 5, 20))):
        writer.keepalive()
        pick = rng.random()
        if pick < 0.1:
            writer.between()
        elif pick < 0.25:
            writer.begin_streaming()
        if writer.running and rng.random() < 0.6:
            writer.go_on_streaming()
        else:
            writer.whole()
    while writer.running and rng.random() < 0.9:
        writer.go_on_streaming()
    return writer.stream
