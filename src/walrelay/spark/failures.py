"""Failures inside Spark become the project's own errors again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from walrelay.errors import SparkJobError, WalrelayError, from_text


@contextmanager
def spark_failures(doing: str) -> Iterator[None]:
    """Turn Spark's exceptions raised inside into ours: the one a task raised if it can be found, else a general one."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = from_text(str(error))
        if found is not None:
            raise found from error
        raise SparkJobError(f"Spark failed while {doing} ({type(error).__name__})") from error


@contextmanager
def as_text() -> Iterator[None]:
    """For code that Spark runs in a worker of its own: only an exception's text crosses to the driver."""
    try:
        yield
    except WalrelayError as error:
        raise RuntimeError(f"{error}\n{error.to_text()}") from None
