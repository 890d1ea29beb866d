"""Where compiled kernels are kept: beside the sources, or where this user may write.

numba has an order of its own, in which a directory counts only if it can be written to. What an image or an
administrator has compiled would be compiled again by everybody who may only read it. So here: what fits is used,
wherever it is; what has to be compiled goes to the first place that can be written to.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from walrelay.config.places import cpu_given, kernels_given, user_cache
from walrelay.errors import KernelsHomelessError

_TREE: Final = Path(__file__).parent.parent
PACKAGES: Final = ("decode", "wire")
"""Those that have kernels."""
_STAMP: Final = "kernels.sha256"
_CPU_FACTS: Final = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")


@dataclass(frozen=True)
class KernelPlace:
    """One directory a package. `root` None is beside the sources."""

    root: Path | None

    def directory(self, package: str) -> Path:
        return _TREE / package / "__pycache__" if self.root is None else self.root / package

    def is_warm(self) -> bool:
        """Whether all kernels are there, compiled from the sources as they are, for this machine."""
        try:
            return self._stamp.read_text(encoding="ascii") == kernels_digest()
        except (OSError, UnicodeDecodeError):
            return False

    def clear(self) -> None:
        """Remove what was compiled from other sources."""
        for package in PACKAGES:
            for compiled in self.directory(package).glob("*.nb[ic]"):
                compiled.unlink(missing_ok=True)

    def mark_warm(self) -> None:
        self._stamp.write_text(kernels_digest(), encoding="ascii")

    @property
    def _stamp(self) -> Path:
        return self.directory(PACKAGES[0]) / _STAMP

    def is_writable(self) -> bool:
        """Makes the directories, for this user alone."""
        try:
            for package in PACKAGES:
                directory = self.directory(package)
                if self.root is not None:
                    self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory.mkdir(exist_ok=True)
                with tempfile.TemporaryFile(dir=directory):
                    pass
        except OSError:
            return False
        return True


@cache
def kernel_place() -> KernelPlace:
    """The place of this process, and of all others of this user on this machine."""
    places = list(_places())
    for place in places:
        if place.is_warm():
            return place
    for place in places:
        if place.is_writable():
            return place
    tried = ", ".join(str(place.directory(PACKAGES[0]).parent) for place in places)
    raise KernelsHomelessError(f"there is no directory for the compiled decoder: none of these can be written: {tried}")


def _places() -> Iterator[KernelPlace]:
    # Its name says what it fits, so that versions and machines that share a home leave each other's alone.
    name = f"kernels-{kernels_digest()[:16]}"
    if (given := kernels_given()) is not None:
        yield KernelPlace(given / f"walrelay-{name}")
        return
    yield KernelPlace(None)
    if (cache_directory := user_cache()) is not None:
        yield KernelPlace(cache_directory / "walrelay" / name)
    with suppress(FileNotFoundError):  # there is no directory for temporary files
        own = Path(tempfile.gettempdir()) / f"walrelay-{os.getuid()}"
        if _is_ours_alone(own):
            yield KernelPlace(own / name)


def _is_ours_alone(directory: Path) -> bool:
    """Make it unless it is there. Where everybody may write, somebody else may have: what is loaded is executed."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return False
    return (
        directory.is_dir() and not directory.is_symlink() and found.st_uid == os.getuid() and not found.st_mode & 0o022
    )


@cache
def kernels_digest() -> str:
    """Of all that compiled kernels depend on. A kernel contains the code of kernels from other files that it calls, so
    any file of the packages counts for all."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for source in sorted((_TREE / package).glob("*.py")):
            digest.update(source.read_bytes())
    facts = (version("numba"), sys.implementation.cache_tag, platform.machine(), cpu_given() or _cpu())
    digest.update("\n".join(facts).encode())
    return digest.hexdigest()


def _cpu() -> str:
    """What Linux says of the processor; elsewhere numba itself finds out whether what was compiled fits."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if line.partition(":")[0].strip() in _CPU_FACTS)
