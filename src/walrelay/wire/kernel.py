"""How kernels are compiled, and how they read big-endian integers.

A kernel is a plain loop over one byte buffer. It never raises: it returns the row it could not decode, or `OK`; its
caller turns that into one kind of error. Bounds are checked by the kernel before every read, because compiled code
does not check them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

OK = -1
"""What a kernel returns when every field was good; else it returns the index of the first bad one."""


def kernel(function: F) -> F:
    """Compile `function` without the GIL, and keep the machine code on disk."""
    compiled: Any = numba.njit(cache=True, nogil=True)(function)
    return cast("F", compiled)


@kernel
def be16(buf: Any, at: Any) -> Any:
    """The signed 16-bit integer at `at`."""
    return numba.int16((numba.uint16(buf[at]) << 8) | numba.uint16(buf[at + 1]))


@kernel
def be32(buf: Any, at: Any) -> Any:
    """The signed 32-bit integer at `at`."""
    return numba.int32(
        (numba.uint32(buf[at]) << 24)
        | (numba.uint32(buf[at + 1]) << 16)
        | (numba.uint32(buf[at + 2]) << 8)
        | numba.uint32(buf[at + 3])
    )


@kernel
def be64(buf: Any, at: Any) -> Any:
    """The signed 64-bit integer at `at`."""
    return numba.int64(
        (numba.uint64(buf[at]) << numba.uint64(56))
        | (numba.uint64(buf[at + 1]) << numba.uint64(48))
        | (numba.uint64(buf[at + 2]) << numba.uint64(40))
        | (numba.uint64(buf[at + 3]) << numba.uint64(32))
        | (numba.uint64(buf[at + 4]) << numba.uint64(24))
        | (numba.uint64(buf[at + 5]) << numba.uint64(16))
        | (numba.uint64(buf[at + 6]) << numba.uint64(8))
        | numba.uint64(buf[at + 7])
    )
