"""A real Spark standalone cluster on loopback: a master and workers as processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import pyspark

from walrelay.spark.class_archive import archive_options

START_SECONDS = 60


class SparkCluster:
    """`with SparkCluster(workers=2) as cluster: … .master(cluster.url)`. Stopped, and its files removed, at the end."""

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._directory = Path(tempfile.mkdtemp(prefix="walrelay-spark-"))
        self.url = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], "master")
            self.url = self._wait_for(r"Starting Spark master at (spark://\S+)", "master", master)[1]
            for number in range(self._workers):
                name = f"worker-{number}"
                place = [
                    "--work-dir",
                    str(self._directory / name),
                    "--host",
                    "127.0.0.1",
                    "--webui-port",
                    "0",
                ]
                size = ["--cores", str(self._cores), "--memory", self._memory]
                self._start("Worker", [*size, *place, self.url], f"worker.{name}", log=name)
            for number, process in enumerate(self._processes[1:]):
                self._wait_for("Successfully registered with master", f"worker-{number}", process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all processes; what they wrote goes with them."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, role: str, arguments: list[str], package: str, log: str = "master") -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{package.split('.', maxsplit=1)[0]}.{role}",
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_NO_DAEMONIZE": "1",
            # For executors too, which inherit it: clusters of tests live for seconds, and should start soon.
            "JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 {archive_options()}",
        }
        with (self._directory / f"{log}.log").open("wb") as words:
            process = subprocess.Popen([*command, *arguments], stdout=words, stderr=words, env=environment)
        self._processes.append(process)
        return process

    def _wait_for(self, pattern: str, log: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
        path = self._directory / f"{log}.log"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(pattern, path.read_text(errors="replace"))
            if found:
                return found
            time.sleep(0.1)
        raise RuntimeError(f"the Spark {log} did not start:\n{path.read_text(errors='replace')[-2000:]}")
