"""Failures inside Spark become the project's own errors again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from walrelay.errors import SparkJobError, SparkLostError, WalrelayError, from_text

T = TypeVar("T")


@contextmanager
def spark_failures(doing: str) -> Iterator[None]:
    """Turn Spark's exceptions raised inside into ours: the one a task raised if it can be found, else a general one."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = from_text(str(error))
        if found is not None:
            raise found from error
        raise SparkJobError(f"Spark failed while {doing} ({type(error).__name__})") from error
    except (Py4JError, ConnectionError) as error:
        raise SparkLostError(f"Spark was lost while {doing}") from error


def insist(doing: str, call: Callable[[], T]) -> T:
    """What Spark answers to a call that may be made twice.

    Each thread talks to the JVM by a connection of its own, and one that breaks says nothing of Spark: the next call
    makes another. Only when that fails too is Spark gone."""
    try:
        with spark_failures(doing):
            return call()
    except SparkLostError:
        with spark_failures(doing):
            return call()


@contextmanager
def as_text() -> Iterator[None]:
    """For code that Spark runs in a worker of its own: only an exception's text crosses to the driver."""
    try:
        yield
    except WalrelayError as error:
        raise RuntimeError(f"{error}\n{error.to_text()}") from None
