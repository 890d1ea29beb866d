"""How kernels are compiled, and how they read big-endian integers.

A kernel is a plain loop over one byte buffer. It never raises: it returns the row it could not decode, or `OK`; its
caller turns that into one kind of error. Bounds are checked by the kernel before every read, because compiled code
does not check them.

numba takes a second to import, and most processes that know the decoders (the driver, Spark's planners, the commands)
never decode anything. So it comes with the first call of any kernel, or with `load_kernels`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import numba

F = TypeVar("F", bound=Callable[..., Any])

OK = -1
"""What a kernel returns when every field was good; else it returns the index of the first bad one."""


class Kernel:
    """Stands for a kernel until numba is there; forwards to the compiled one afterwards, where it is still held."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        load_kernels()
        return self.compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by copiers and picklers, before there is anything to forward to
        load_kernels()
        return getattr(self.compiled, name)


class _Kernels:
    """All of them. Modules may still be imported in one thread while another one makes the first call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._loaded = threading.Event()
        self._waiting: list[Kernel] = []

    def add(self, function: Callable[..., Any]) -> Any:
        with self._lock:
            if self._loaded.is_set():
                return self._compile(function)
            self._waiting.append(Kernel(function))
            return self._waiting[-1]

    def load(self) -> None:
        if self._loaded.is_set():
            return
        with self._lock:
            if self._loaded.is_set():
                return
            import numba

            globals()["numba"] = numba
            for each in self._waiting:
                each.compiled = self._compile(each.function)
            self._put_in_place()
            self._loaded.set()

    @staticmethod
    def _compile(function: Callable[..., Any]) -> Any:
        import numba

        from walrelay.wire.kernel_cache import keep_compiled

        compiled = numba.njit(nogil=True)(function)
        keep_compiled(compiled)
        return compiled

    @staticmethod
    def _put_in_place() -> None:
        """Kernels call each other by their modules' names, which numba looks up: let these mean the compiled ones."""
        for name, module in list(sys.modules.items()):
            if name.startswith("walrelay."):
                for key, value in list(vars(module).items()):
                    if type(value) is Kernel:
                        setattr(module, key, value.compiled)


_kernels = _Kernels()


def kernel(function: F) -> F:
    """Compile `function` without the GIL, and keep the machine code on disk."""
    return cast("F", _kernels.add(function))


def load_kernels() -> None:
    """Import numba and hand it all kernels, unless that is done: before a fork, so that children need not."""
    _kernels.load()


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
