"""Where this user's programs may keep what they can make again, and what was said about compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path | None:
    """`$XDG_CACHE_HOME`, else `~/.cache`; None for a user who has no home, as in some containers."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.startswith("/"):
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def kernels_given() -> Path | None:
    """Where compiled kernels are to go; numba's own variable, so that who knows it needs no other."""
    given = os.environ.get("NUMBA_CACHE_DIR", "")
    return Path(given) if given else None


def cpu_given() -> str:
    """For which processor numba is to compile; empty for the one that it runs on."""
    name, features = os.environ.get("NUMBA_CPU_NAME", ""), os.environ.get("NUMBA_CPU_FEATURES", "")
    return f"{name} {features}" if name else ""
