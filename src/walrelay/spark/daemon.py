"""The process from which Spark forks its Python workers, with the decoder loaded once for all of them."""

from __future__ import annotations

import gc

import walrelay.spark.copy_task  # noqa: F401  # loaded before the fork: numba and pyarrow take half a second
from walrelay.decode.base import ARROW
from walrelay.decode.warm import is_warm, warm, warm_walk

if __name__ == "__main__":
    from pyspark.daemon import manager

    if is_warm():
        warm_walk()
        warm(ARROW)
    # After every task Spark's workers collect garbage, which means to walk all that numba and pyarrow have made: a
    # fifth of a second each time. What is there before the fork is there to stay.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
