"""Identifiers of fixed width as text: pg_lsn, uuid, "char", tid, xid8."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import (
    COMMA,
    MINUS,
    SLASH,
    ZERO,
    RenderedDecoder,
    put_hex_byte,
    put_unsigned,
)
from walrelay.wire.kernel import OK, be16, be32, be64, kernel

PG_LSN, UUID, CHAR, TID, XID8 = range(5)

_OPEN, _CLOSE, _BACKSLASH, _UPPER_A = ord("("), ord(")"), ord("\\"), ord("A")


@kernel
def put_upper_hex(out: Any, at: Any, value: Any) -> Any:
    """Write an unsigned 32-bit integer in upper-case hexadecimal without leading zeros."""
    shift = 28
    while shift > 0 and value >> shift == 0:
        shift -= 4
    while shift >= 0:
        digit = (value >> shift) & 15
        out[at] = ZERO + digit if digit < 10 else _UPPER_A + digit - 10
        at += 1
        shift -= 4
    return at


@kernel
def put_lsn(buf: Any, start: Any, out: Any, at: Any) -> Any:
    """Write the two halves as %X/%X."""
    at = put_upper_hex(out, at, np.int64(be32(buf, start)) & 0xFFFFFFFF)
    out[at] = SLASH
    return put_upper_hex(out, at + 1, np.int64(be32(buf, start + 4)) & 0xFFFFFFFF)


@kernel
def put_uuid(buf: Any, start: Any, out: Any, at: Any) -> Any:
    """Write groups of 4, 2, 2, 2 and 6 bytes."""
    # Views of a known beginning let the compiler unroll the loop: four times as fast as counting up in `out`.
    value, text = buf[start : start + 16], out[at : at + 36]
    to = 0
    for k in range(16):
        if 4 <= k <= 10 and k % 2 == 0:
            text[to] = MINUS
            to += 1
        to = put_hex_byte(text, to, value[k])
    return at + 36


@kernel
def put_char(byte: Any, out: Any, at: Any) -> Any:
    r"""Write the byte itself; zero as nothing; with its high bit set as \ooo.

    Postgres before 15 prints such a byte as it is, which no text in UTF-8 can hold.
    """
    if byte == 0:
        return at
    if byte < 0x80:
        out[at] = byte
        return at + 1
    out[at] = _BACKSLASH
    out[at + 1] = ZERO + (byte >> 6)
    out[at + 2] = ZERO + ((byte >> 3) & 7)
    out[at + 3] = ZERO + (byte & 7)
    return at + 4


@kernel
def put_tid(buf: Any, start: Any, out: Any, at: Any) -> Any:
    """Write (block,offset)."""
    out[at] = _OPEN
    at = put_unsigned(out, at + 1, np.int64(be32(buf, start)) & 0xFFFFFFFF)
    out[at] = COMMA
    at = put_unsigned(out, at + 1, np.int64(be16(buf, start + 4)) & 0xFFFF)
    out[at] = _CLOSE
    return at + 1


@kernel
def render_identifiers(
    buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, kind: int, width: int
) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != width:
            return i
        if kind == PG_LSN:
            at = put_lsn(buf, starts[i], out, at)
        elif kind == UUID:
            at = put_uuid(buf, starts[i], out, at)
        elif kind == CHAR:
            at = put_char(np.int64(buf[starts[i]]), out, at)
        elif kind == TID:
            at = put_tid(buf, starts[i], out, at)
        else:
            at = put_unsigned(out, at, be64(buf, starts[i]))
    offsets[starts.size] = at
    return OK


def pg_lsn() -> RenderedDecoder:
    return RenderedDecoder("pg_lsn", render_identifiers, per_value=17, options=(PG_LSN, 8))


def uuid_text() -> RenderedDecoder:
    return RenderedDecoder("uuid", render_identifiers, per_value=36, options=(UUID, 16))


def char() -> RenderedDecoder:
    """The one-byte type that is written "char" with its quotes."""
    return RenderedDecoder('"char"', render_identifiers, per_value=4, options=(CHAR, 1))


def tid() -> RenderedDecoder:
    return RenderedDecoder("tid", render_identifiers, per_value=18, options=(TID, 6))


def xid8() -> RenderedDecoder:
    return RenderedDecoder("xid8", render_identifiers, per_value=20, options=(XID8, 8))
