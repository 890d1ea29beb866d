"""numba's own cache of compiled functions, in a place of our choice. Imported when numba is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache

from walrelay.wire.kernel_places import kernel_place, kernels_digest


class _Locator:
    """What numba asks for the directory of a function, and whether what is there is of the function as it is now."""

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._directory = kernel_place().directory(file.parent.name)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, Path(file))

    def ensure_cache_path(self) -> None:
        self._directory.mkdir(exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return kernels_digest()

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # as numba declares it


class _KernelCache(FunctionCache):
    _impl_class = _Files

    def save_overload(self, signature: Any, compiled: Any) -> None:
        # Where one may only read, or the disk is full, it serves this process and is compiled again by the next.
        with suppress(OSError):
            super().save_overload(signature, compiled)  # type: ignore[no-untyped-call]


def keep_compiled(kernel: Any) -> None:
    """Let a compiled function be kept on disk, and found there."""
    if hasattr(kernel, "enable_caching"):  # not with NUMBA_DISABLE_JIT, which leaves it as it was written
        kernel._cache = _KernelCache(kernel.py_func)  # type: ignore[no-untyped-call]
