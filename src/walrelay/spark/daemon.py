"""The process from which Spark forks its Python workers, with the decoder loaded once for all of them."""

from __future__ import annotations

import gc
import zipimport
from pathlib import Path

import walrelay.spark.copy_task  # noqa: F401  # loaded before the fork: pyarrow takes half a second
from walrelay.decode.base import ARROW
from walrelay.decode.warm import is_warm, warm, warm_walk
from walrelay.wire.kernel import load_kernels


def keep_archives() -> None:
    """Read an archive's directory again only when the archive has changed.

    Before every task Spark's workers forget what importers know, whereupon Python reads the directory of `pyspark.zip`
    anew: a tenth of a second, for an archive that is never written again.
    """
    read_again = zipimport.zipimporter.invalidate_caches
    seen: dict[str, float] = {}

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        try:
            changed = Path(self.archive).stat().st_mtime
        except OSError:
            changed = -1.0
        if seen.get(self.archive) != changed:
            read_again(self)
            seen[self.archive] = changed

    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


if __name__ == "__main__":
    import importlib

    from pyspark.daemon import manager

    keep_archives()
    importlib.invalidate_caches()  # once for all that are forked

    load_kernels()
    if is_warm():
        warm_walk()
        warm(ARROW)
    # After every task Spark's workers collect garbage, which means to walk all that numba and pyarrow have made: a
    # fifth of a second each time. What is there before the fork is there to stay.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
