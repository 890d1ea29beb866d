"""hstore as text: "key"=>"value", "key"=>NULL."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import BAD, COMMA, RenderedDecoder
from walrelay.wire.kernel import OK, be32, kernel

_SPACE, _QUOTE, _BACKSLASH = ord(" "), ord('"'), ord("\\")
_EQUALS, _GREATER = ord("="), ord(">")
_N, _U, _L = ord("N"), ord("U"), ord("L")
_NULL = -1


@kernel
def put_quoted(buf: Any, start: Any, length: Any, out: Any, at: Any) -> Any:
    """Write the text in double quotes, with a backslash before quotes and backslashes."""
    out[at] = _QUOTE
    at += 1
    for k in range(length):
        byte = buf[start + k]
        if byte in (_QUOTE, _BACKSLASH):
            out[at] = _BACKSLASH
            at += 1
        out[at] = byte
        at += 1
    out[at] = _QUOTE
    return at + 1


@kernel
def put_hstore(buf: Any, start: Any, length: Any, out: Any, at: Any) -> Any:
    """Write one value. On the wire: a count of pairs (int32); before each text its length, -1 for NULL."""
    if length < 4:
        return BAD
    count = np.int64(be32(buf, start))
    read, end = start + 4, start + length
    # A pair takes 8 bytes or more, so this also bounds the loop below.
    if count < 0 or 8 * count > end - read:
        return BAD
    for k in range(count):
        if k > 0:
            out[at] = COMMA
            out[at + 1] = _SPACE
            at += 2
        if end - read < 4:
            return BAD
        size = np.int64(be32(buf, read))
        read += 4
        if size < 0 or size > end - read:
            return BAD
        at = put_quoted(buf, read, size, out, at)
        read += size
        out[at] = _EQUALS
        out[at + 1] = _GREATER
        at += 2
        if end - read < 4:
            return BAD
        size = np.int64(be32(buf, read))
        read += 4
        if size == _NULL:
            out[at] = _N
            out[at + 1] = _U
            out[at + 2] = _L
            out[at + 3] = _L
            at += 4
            continue
        if size < 0 or size > end - read:
            return BAD
        at = put_quoted(buf, read, size, out, at)
        read += size
    return at if read == end else BAD


@kernel
def render_hstores(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        at = put_hstore(buf, starts[i], lengths[i], out, at)
        if at == BAD:
            return i
    offsets[starts.size] = at
    return OK


def hstore() -> RenderedDecoder:
    # The two lengths of a pair are 8 bytes and stand for at most 10 characters; a byte of text for at most 2.
    return RenderedDecoder("hstore", render_hstores, per_byte=2, holds_text=True)
