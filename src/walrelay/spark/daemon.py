"""The process from which Spark forks its Python workers, with the decoder loaded once for all of them."""

from __future__ import annotations

import walrelay.spark.copy_task  # noqa: F401  # loaded before the fork: numba and pyarrow take half a second

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
