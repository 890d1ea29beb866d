"""The Spark session: the user's, or a quiet local one that fits a copy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.errors import JavaMissingError, SparkJobError
from walrelay.spark.class_archive import archive_options
from walrelay.spark.jvm import end_jvm, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
GRACE_SECONDS = 3.0
"""How long a session that is not wanted any more may take to find that its JVM is gone."""
_STARTING = threading.Lock()
"""Held while a session of our own is made."""
FORGETTING = 10
"""How many jobs may fail until all dead workers are found; each finds as many as there are cores, or a few less."""

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.app.name": "walrelay",
    # Nobody looks at the web page of a command that runs for seconds; set it to true to follow a long one.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Loopback needs no name service, and no firewall has to be asked.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Several tables share the cores fairly: a small one does not wait for all tasks of a large one.
    "spark.scheduler.mode": "FAIR",
    # Workers are forked from a process that has the decoder loaded already.
    "spark.python.daemon.module": "walrelay.spark.daemon",
    # The JVM only schedules here, rows pass it by: the quick compiler halves its start, and the slow one never pays.
    # With the simple collector and a small heap, which grows if need be, it takes a third less memory.
    # For a job of your own on this session set it to "".
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms128m -Xmn48m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}
"""What a session of our own is started with. Give `spark_settings` to override any, or a session to replace all."""


def spark_session(given: SparkSession | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that was given, or the active one, else a new local one (which then is the active one)."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from walrelay.changes.spark_failures import spark_failures

    found = given or running_session()
    if found is not None:
        return found
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = Path(str(files("walrelay.spark").joinpath("log4j2.properties")))
    chosen = {**LOCAL_SETTINGS, **(settings or {})}
    chosen["spark.driver.extraJavaOptions"] += f" {archive_options()} -Dlog4j2.configurationFile=file:{quiet}"
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    interrupt = signal.getsignal(signal.SIGINT)
    with _STARTING, spark_failures("starting"), _at_home(chosen["spark.master"]):
        context: Any = SparkContext(conf=conf, gateway=start_jvm(conf))
        # It prints a traceback when the JVM is killed, which whoever needed it says in better words.
        context._accumulatorServer.handle_error = lambda *_: None
        if threading.current_thread() is threading.main_thread():
            # Spark takes Ctrl-C for itself; whoever handles it here ends in better order.
            signal.signal(signal.SIGINT, interrupt)
        return SparkSession.builder.getOrCreate()


@contextmanager
def _at_home(master: str) -> Iterator[None]:
    """Let a Spark that stays on this machine not ask for the machine's address: its name need not be known anywhere."""
    if not master.startswith("local") or "SPARK_LOCAL_IP" in os.environ:
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = LOCAL_SETTINGS["spark.driver.host"]
    try:
        yield
    finally:
        del os.environ["SPARK_LOCAL_IP"]


def running_session() -> SparkSession | None:
    """The active session, or the one that another thread has made: `active` is a matter of the thread."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._jvm is None:
        return None  # it has ended, perhaps while a session was being made
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return active


def warm_workers(spark: SparkSession) -> None:
    """Let Spark start its Python workers, in the background: the first one takes seconds."""

    def warm() -> None:
        with suppress(Exception):  # whatever is wrong will be said by what really needs a worker
            _use_workers(spark, 1)

    threading.Thread(target=warm, name="walrelay-warm-workers", daemon=True).start()


def warm_when_started(session: Future[SparkSession]) -> None:
    """The same, of a session that has just started, or has not."""
    if session.exception() is None:
        warm_workers(session.result())


def forget_dead_workers(spark: SparkSession) -> None:
    """Let Spark come across the workers that were killed while they had nothing to do: it keeps them to use them again,
    and every task that gets one fails."""
    from walrelay.changes.spark_failures import insist

    for _ in range(FORGETTING):
        with suppress(SparkJobError):
            insist("looking for dead workers", lambda: _use_workers(spark, spark.sparkContext.defaultParallelism))
            return


def _use_workers(spark: SparkSession, tasks: int) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.job.description", "walrelay: starting Python workers")
    context.parallelize(range(tasks), tasks).mapPartitions(list).count()


def stop_session() -> None:
    """Stop the active session, if any: at the end of a command, so that its processes end before it does. One that is
    just being started, in another thread, is not worth waiting for."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    started = _STARTING.acquire(blocking=False)
    if not started:
        end_jvm(at_once=True)
        started = _STARTING.acquire(timeout=GRACE_SECONDS)
    try:
        with suppress(Py4JError, ConnectionError):  # its JVM is gone, and whoever needed it has said so
            session = running_session() if started else None
            if session is not None:
                session.stop()
        end_jvm()
    finally:
        if started:
            _STARTING.release()


def check_java() -> None:
    """A JDK that Spark can run on, or an error that says how to get one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise JavaMissingError(f"Spark needs Java, and there is none {where}")
    version = _java_version(java)
    if version < OLDEST_JAVA:
        raise JavaMissingError(f"Spark needs Java {OLDEST_JAVA} or newer; {java} is {version or 'of unknown version'}")


@cache
def _java_version(java: str) -> int:
    """0 when it does not say. A JDK has it in a file, too: a JVM that is only asked takes a third of a second."""
    release = Path(java).resolve().parent.parent / "release"
    with suppress(OSError):
        if match := re.search(r'^JAVA_VERSION="(\d+)', release.read_text("utf-8", "replace"), re.MULTILINE):
            return int(match[1])
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0
