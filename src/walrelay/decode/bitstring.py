"""bit and varbit as text of 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import ZERO, RenderedDecoder
from walrelay.wire.kernel import OK, be32, kernel


@kernel
def render_bits(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    """An int32 count of bits, then the bits, highest first, in as many bytes as they need."""
    at: Any = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] < 4:
            return i
        start = starts[i] + 4
        count = np.int64(be32(buf, starts[i]))
        if count < 0 or lengths[i] - 4 != (count + 7) // 8:
            return i
        for k in range(count):
            out[at + k] = ZERO + ((buf[start + (k >> 3)] >> (7 - (k & 7))) & 1)
        at += count
    offsets[starts.size] = at
    return OK


def bit() -> RenderedDecoder:
    """Both bit(n) and bit varying: they look the same on the wire."""
    return RenderedDecoder("bit string", render_bits, per_byte=8)
