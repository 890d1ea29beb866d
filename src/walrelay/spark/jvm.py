"""The JVM that Spark runs in, where it is ours: how it starts, where it writes, and how it ends.

It is in a session of its own: what a terminal, `timeout` or a service manager sends to our process group reaches us
alone, and we end it in our order. It ends by itself, too, when its standard input does, which is when we are dead.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.destinations.staging import RunDirectory, staging_failure, temporary_root
from walrelay.errors import SparkStartError

if TYPE_CHECKING:
    from pyspark import SparkConf

PATIENCE_SECONDS = 3.0
"""For the JVM's own end; after Spark has stopped it only has files to remove, which we do in its place."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_DIRECTORY = "spark.local.dir"
_ours: list[Jvm] = []
"""The one that runs, if any."""


class Jvm:
    """A running JVM with a directory of its own for all that Spark writes: nobody else's is ever removed."""

    def __init__(self, conf: SparkConf) -> None:
        _quieten_py4j()
        root = temporary_root()
        try:
            self._directory = RunDirectory(root)
        except OSError as error:
            raise staging_failure(error, root) from error
        try:
            self.gateway = _launch(_writing_to(self._directory.path, conf))
        except BaseException:
            self._directory.remove()
            raise
        self._process: subprocess.Popen[bytes] = self.gateway.proc
        self._starter = os.getpid()

    def end(self, *, at_once: bool) -> None:
        """Nothing of it is left when this returns, neither a process nor a file. Not for a forked child to do."""
        if os.getpid() != self._starter:
            return
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(0 if at_once else PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(Exception):  # py4j's side of connections that are gone
            self.gateway.close()
            self.gateway.shutdown_callback_server()
        self._directory.remove()


def start_jvm(conf: SparkConf) -> Any:
    """The gateway to a new JVM; None where somebody else has started one, which then is used. `conf` is completed."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None and not _ours:
        return None
    end_jvm()
    jvm = Jvm(conf)
    _ours.append(jvm)
    return jvm.gateway


def end_jvm(*, at_once: bool = False) -> None:
    """End the JVM that we have started, if any. Spark has been stopped before, or has no time for it."""
    while _ours:
        from pyspark import SparkContext

        jvm = _ours.pop()
        if SparkContext._gateway is jvm.gateway:
            SparkContext._gateway = None
            SparkContext._jvm = None
        jvm.end(at_once=at_once)


atexit.register(end_jvm)


def _quieten_py4j() -> None:
    """py4j writes a traceback for every connection that breaks; what matters reaches the user as an error."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    if logger.level == logging.CRITICAL and _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)  # it logs some of them there


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _writing_to(directory: Path, conf: SparkConf) -> SparkConf:
    """Spark's settings with all that it writes below the directory, unless it was told where."""
    if conf.get(_LOCAL_DIRECTORY) is None:
        conf.set(_LOCAL_DIRECTORY, str(directory))
    return conf.set(JAVA_OPTIONS, f'{conf.get(JAVA_OPTIONS, "")} "-Djava.io.tmpdir={directory}"')


def _launch(conf: SparkConf) -> Any:
    """The JVM, with its own output in a file: it greets every user with warnings that mean nothing. They are shown
    when it does not start."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    with tempfile.TemporaryFile() as words:
        how = {"stdout": words, "stderr": words, "start_new_session": True}
        try:
            return launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            words.seek(0)
            said = words.read().decode("utf-8", "replace").strip().splitlines()[-5:]
            hint = "Correct the --spark setting, or free the memory, that its last words name: " + " / ".join(said)
            raise SparkStartError("Spark did not start", hint=hint) from error
