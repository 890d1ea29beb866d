"""inet, cidr, macaddr and macaddr8, printed as Postgres prints them."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import (
    BAD,
    COLON,
    POINT,
    SLASH,
    RenderedDecoder,
    hex_digit,
    put_hex_byte,
    put_unsigned,
)
from walrelay.wire.kernel import OK, be16, kernel

# utils/inet.h: the families are numbered by Postgres itself, not by the operating system.
FAMILY_4, FAMILY_6 = 2, 3


@kernel
def put_ipv4(buf: Any, start: Any, out: Any, at: Any) -> Any:
    at = put_unsigned(out, at, buf[start])
    for k in range(1, 4):
        out[at] = POINT
        at = put_unsigned(out, at + 1, buf[start + k])
    return at


@kernel
def put_group(out: Any, at: Any, group: Any) -> Any:
    """Write a 16-bit group in hexadecimal without leading zeros."""
    shift = 12
    while shift > 0 and group >> shift == 0:
        shift -= 4
    while shift >= 0:
        out[at] = hex_digit((group >> shift) & 15)
        at += 1
        shift -= 4
    return at


@kernel
def longest_zeros(buf: Any, start: Any) -> Any:
    """(first group, size) of the first longest run of two or more zero groups; (-1, 0) without one."""
    best, best_size = -1, 1
    size = 0
    for k in range(8):
        size = size + 1 if be16(buf, start + 2 * k) == 0 else 0
        if size > best_size:
            best, best_size = k + 1 - size, size
    return best, best_size if best >= 0 else 0


@kernel
def put_ipv6(buf: Any, start: Any, out: Any, at: Any) -> Any:
    """Write eight groups, the longest run of zeros as «::», an embedded IPv4 address in its own notation."""
    zeros, size = longest_zeros(buf, start)
    mapped = size == 5 and (np.int64(be16(buf, start + 10)) & 0xFFFF) == 0xFFFF
    embeds_ipv4 = zeros == 0 and (size == 6 or mapped)
    k = 0
    while k < 8:
        if k == zeros:
            out[at] = COLON
            at += 1
            k += size
            if k == 8:
                out[at] = COLON
                at += 1
            continue
        if k > 0:
            out[at] = COLON
            at += 1
        if k == 6 and embeds_ipv4:
            return put_ipv4(buf, start + 12, out, at)
        at = put_group(out, at, np.int64(be16(buf, start + 2 * k)) & 0xFFFF)
        k += 1
    return at


@kernel
def put_address(buf: Any, start: Any, length: Any, out: Any, at: Any, always_bits: int) -> Any:
    """Write one address. On the wire: family, bits of the netmask, «is a cidr», count of bytes, bytes."""
    if length < 4:
        return BAD
    family, bits, size = buf[start], np.int64(buf[start + 1]), np.int64(buf[start + 3])
    if length != 4 + size or bits > 8 * size:
        return BAD
    if family == FAMILY_4 and size == 4:
        at = put_ipv4(buf, start + 4, out, at)
    elif family == FAMILY_6 and size == 16:
        at = put_ipv6(buf, start + 4, out, at)
    else:
        return BAD
    if always_bits or bits != 8 * size:
        out[at] = SLASH
        at = put_unsigned(out, at + 1, bits)
    return at


@kernel
def render_addresses(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, always_bits: int) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        at = put_address(buf, starts[i], lengths[i], out, at, always_bits)
        if at == BAD:
            return i
    offsets[starts.size] = at
    return OK


@kernel
def render_macs(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, width: int) -> int:
    """`width` bytes as pairs of hexadecimal digits between colons."""
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != width:
            return i
        for k in range(width):
            if k > 0:
                out[at] = COLON
                at += 1
            at = put_hex_byte(out, at, buf[starts[i] + k])
    offsets[starts.size] = at
    return OK


def inet() -> RenderedDecoder:
    """The netmask is printed unless it covers the whole address."""
    return RenderedDecoder("inet", render_addresses, per_value=48, options=(0,))


def cidr() -> RenderedDecoder:
    """The netmask is always printed."""
    return RenderedDecoder("cidr", render_addresses, per_value=48, options=(1,))


def macaddr() -> RenderedDecoder:
    return RenderedDecoder("macaddr", render_macs, per_byte=3, options=(6,))


def macaddr8() -> RenderedDecoder:
    return RenderedDecoder("macaddr8", render_macs, per_byte=3, options=(8,))
