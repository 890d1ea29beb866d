"""SHA-256 of a column's values, in hex, without a Python call for each: what hides a column is on the hot path too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.wire.kernel import kernel

HEX = 64
"""Digits of a digest."""


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % one for one in found):
            found.append(number)
        number += 1
    return found


def _root_bits(number: int, power: int) -> int:
    """The first 32 bits behind the point of the number's square root (2) or cube root (3), exactly."""
    wanted = number << (32 * power)
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**power <= wanted else (low, middle)
    return low & 0xFFFFFFFF


ROUND = np.array([_root_bits(prime, 3) for prime in _primes(64)], np.uint32)
BEGIN = np.array([_root_bits(prime, 2) for prime in _primes(8)], np.uint32)
"""The constants of FIPS 180-4, computed as it defines them."""
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@kernel
def sha256_block(block: Any, state: Any, words: Any, constants: Any) -> None:
    """Take one block of 64 bytes into the state."""
    for i in range(16):
        at = 4 * i
        words[i] = (
            (np.uint32(block[at]) << np.uint32(24))
            | (np.uint32(block[at + 1]) << np.uint32(16))
            | (np.uint32(block[at + 2]) << np.uint32(8))
            | np.uint32(block[at + 3])
        )
    for i in range(16, 64):
        x, y = words[i - 15], words[i - 2]
        s0 = ((x >> np.uint32(7)) | (x << np.uint32(25))) ^ ((x >> np.uint32(18)) | (x << np.uint32(14)))
        s1 = ((y >> np.uint32(17)) | (y << np.uint32(15))) ^ ((y >> np.uint32(19)) | (y << np.uint32(13)))
        words[i] = np.uint32(
            words[i - 16] + np.uint32(s0 ^ (x >> np.uint32(3))) + words[i - 7] + np.uint32(s1 ^ (y >> np.uint32(10)))
        )
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for i in range(64):
        s1 = (
            ((e >> np.uint32(6)) | (e << np.uint32(26)))
            ^ ((e >> np.uint32(11)) | (e << np.uint32(21)))
            ^ ((e >> np.uint32(25)) | (e << np.uint32(7)))
        )
        first = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + constants[i] + words[i])
        s0 = (
            ((a >> np.uint32(2)) | (a << np.uint32(30)))
            ^ ((a >> np.uint32(13)) | (a << np.uint32(19)))
            ^ ((a >> np.uint32(22)) | (a << np.uint32(10)))
        )
        second = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f, e = g, f, e, np.uint32(d + first)
        d, c, b, a = c, b, a, np.uint32(first + second)
    state[0] = np.uint32(state[0] + a)
    state[1] = np.uint32(state[1] + b)
    state[2] = np.uint32(state[2] + c)
    state[3] = np.uint32(state[3] + d)
    state[4] = np.uint32(state[4] + e)
    state[5] = np.uint32(state[5] + f)
    state[6] = np.uint32(state[6] + g)
    state[7] = np.uint32(state[7] + h)


@kernel
def sha256_rows(
    data: Any, offsets: Any, valid: Any, salt: Any, begin: Any, constants: Any, digits: Any, out: Any
) -> None:
    """Of each valid row the digest of the salt and its bytes, as 64 digits one after the other in `out`."""
    block, words, state = np.empty(64, np.uint8), np.empty(64, np.uint32), np.empty(8, np.uint32)
    written = 0
    for row in range(len(valid)):
        if not valid[row]:
            continue
        start = offsets[row]
        total = len(salt) + offsets[row + 1] - start
        state[:] = begin
        blocks = (total + 9 + 63) // 64
        for number in range(blocks):
            for place in range(64):
                at = 64 * number + place
                byte = np.uint8(0)
                if at < len(salt):
                    byte = salt[at]
                elif at < total:
                    byte = data[start + at - len(salt)]
                elif at == total:
                    byte = np.uint8(0x80)
                elif at >= 64 * blocks - 8:
                    byte = np.uint8(((8 * total) >> (8 * (64 * blocks - 1 - at))) & 255)
                block[place] = byte
            sha256_block(block, state, words, constants)
        for i in range(8):
            for nibble in range(8):
                out[written] = digits[(state[i] >> np.uint32(28 - 4 * nibble)) & np.uint32(15)]
                written += 1


def sha256_hex(values: pa.Array, salt: bytes = b"") -> pa.Array:
    """Of each string, or bytes, the SHA-256 of the salt and it, in hex; NULL stays NULL."""
    flat = values.cast(pa.large_binary() if not pa.types.is_string(values.type) else pa.large_string())
    valid: npt.NDArray[np.bool_] = flat.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(flat.buffers()[1], np.int64, len(flat) + 1, 8 * flat.offset) if len(flat) else np.zeros(1)
    held = flat.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(1, np.uint8)
    count = int(valid.sum())
    out = np.empty(HEX * count, np.uint8)
    # Kernels are compiled for memory that may be written to, or may not: one of them, so that it is one kernel.
    sha256_rows(
        _readonly(data),
        _readonly(offsets.astype(np.int64, copy=False)),
        valid,
        _readonly(np.frombuffer(salt or b"", np.uint8)),
        BEGIN,
        ROUND,
        DIGITS,
        out,
    )
    ends = np.zeros(len(flat) + 1, np.int32)
    np.cumsum(valid * HEX, out=ends[1:])
    bits = None if count == len(flat) else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(flat), [bits, pa.py_buffer(ends), pa.py_buffer(out)])


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
