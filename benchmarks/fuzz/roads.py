"""A stream's bytes through the code that reads them, to the end or to an error."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import numpy as np
import pyarrow as pa

from benchmarks.fuzz.stream import Road
from walrelay.decode.base import Decoder, Fields, Tally, Target
from walrelay.decode.table import TableDecoder, column_decoder
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.copy_socket import SocketCopy
from walrelay.wire.copy_binary import CopyBuffer, Rows

LARGEST_SOCKET_STREAM = 64 * 1024
"""More may not fit into a socket's buffer, and nobody reads while we write."""


class BrokenPromiseError(AssertionError):
    """The code under test did something it says it never does."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a stream is read."""

    schema: TableSchema
    road: Road
    target: Target
    special_values: SpecialValues
    capacity: int
    step: int
    """Bytes received at once."""
    confined: bool = False
    """Whether to prove that decoders look at no byte outside their fields (slow)."""

    def batches(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """The rows as they are decoded."""
        decoder = TableDecoder(self.schema, Tally(self.target, self.special_values))
        if self.road == "socket" and len(data) <= LARGEST_SOCKET_STREAM:
            found = self._through_socket(data)
        else:
            found = self._by_hand(data)
        for rows in found:
            if self.confined:
                self._prove_confined(rows)
            yield decoder.decode(rows)

    def _buffer(self, *, framed: bool) -> CopyBuffer:
        return CopyBuffer(len(self.schema.columns), framed=framed, capacity=self.capacity)

    def _by_hand(self, data: bytes) -> Iterator[Rows]:
        """Feed the buffer as both readers do, and end as `SocketCopy` does."""
        framed = self.road != "plain"
        buffer, at = self._buffer(framed=framed), 0
        while True:
            # As long as it is starved the buffer says that there can be no row: it had better be right.
            while (at == len(data) or not buffer.starved) and (rows := buffer.rows()) is not None:
                yield rows
            if buffer.finished:
                if len(buffer.pending) or at < len(data):
                    raise BadBytesError("bytes after the trailer", position=buffer.position)
                return
            if framed and len(buffer.pending) and buffer.pending[:1].tobytes() != b"d":
                raise BadBytesError("an unexpected message", position=buffer.position)
            if at == len(data):
                raise BadBytesError("the stream ended before its trailer", position=buffer.position)
            room = buffer.room()
            if not 0 < len(room) <= 4 * (self.capacity + at):
                raise BrokenPromiseError(f"room for {len(room)} bytes, after {at} had come")
            some = data[at : at + min(len(room), self.step)]
            room[: len(some)] = some
            buffer.received(len(some))
            at += len(some)

    def _through_socket(self, data: bytes) -> Iterator[Rows]:
        """Everything is on the socket already, and the other side has hung up: nothing here has to wait."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            connection = cast(Any, ours)  # all that is asked of a connection is its file number
            yield from SocketCopy(connection, self._buffer(framed=True)).run(b"COPY")

    def _prove_confined(self, rows: Rows) -> None:
        """Decode each column a second time, with every byte turned that is not its own."""
        for index, column in enumerate(self.schema.columns):
            starts, lengths = rows.starts[index], rows.lengths[index]
            foreign = np.full(len(rows.buf), 0xFF, np.uint8)
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                foreign[start : start + max(length, 0)] = 0
            decoder = column_decoder(column, self.target)
            once = self._outcome(decoder, Fields(rows.buf, starts, lengths))
            again = self._outcome(decoder, Fields(rows.buf ^ foreign, starts, lengths))
            if once != again:
                raise BrokenPromiseError(f"a decoder of {column.type} looks at bytes outside its fields")

    def _outcome(self, decoder: Decoder, fields: Fields) -> object:
        try:
            array = decoder.decode(fields, Tally(self.target, self.special_values))
        except BadBytesError as error:
            return error.position, error.reason
        except SpecialValueError as error:
            return error.message
        return pa.RecordBatch.from_arrays([array], ["values"]).serialize().to_pybytes()


def random_reading(rng: Random, schema: TableSchema, road: Road, targets: tuple[Target, ...]) -> Reading:
    """Any target and policy; buffers and reads from tiny to larger than all streams."""
    policies: tuple[SpecialValues, ...] = ("null", "null", "clamp", "error")
    pick: Callable[[tuple[int, ...]], int] = rng.choice
    return Reading(
        schema,
        road,
        target=rng.choice(targets),
        special_values=rng.choice(policies),
        capacity=pick((64, 300, 4096, 65_536)),
        step=pick((1, 7, 100, 1000, 65_536, 65_536)),
        confined=rng.random() < 0.25,
    )
