"""Blocks of code on the documentation's pages, and running them as a reader does: in order, in a folder, on a database.

Commands of ours and Python run in this process, so that many pages share one JVM; everything else is given to bash."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from tests.e2e.test_readme import ADDRESS
from walrelay.cli import replicate
from walrelay.cli.app import app

ROOT = Path(__file__).parents[2]
LANGUAGES = ("sh", "python", "sql")
"""What a reader runs. Output, settings and plans are `text`, `json`, `toml`, `yaml`."""
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    title: str | None
    """The name of the file that the reader is told to save it as."""
    text: str

    def lines(self) -> list[str]:
        """The commands of a shell's block: without comments, with continued lines in one."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in map(str.strip, joined.splitlines()) if line and not line.startswith("#")]


def all_pages() -> list[str]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks, also those that nobody runs."""
    made = []
    for match in _FENCE.finditer((ROOT / page).read_text(encoding="utf-8")):
        title = _TITLE.search(match["info"])
        text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.M)
        language = match["info"].split(maxsplit=1)[0] if match["info"].strip() else ""
        made.append(Block(page, language, title[1] if title else None, text))
    return made


def runnable(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language in LANGUAGES]


@dataclass
class Walk:
    """One reader of one page."""

    page: str
    url: str
    """Of the source; stands in for the address that the pages show."""
    directory: Path
    excused: dict[str, str] = field(default_factory=dict)
    """Beginnings of commands or blocks that are not run here, and why."""
    exit_codes: dict[str, int] = field(default_factory=dict)
    """Of commands that end otherwise than with 0, as the page says."""
    replaced: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """What commands and scripts printed, one after the other."""

    def go(self) -> None:
        for block in runnable(self.page):
            self.run(block)

    def run(self, block: Block) -> None:
        text = self._ours(block.text)
        if block.title is not None:
            (self.directory / block.title).write_text(text)
        elif self._is_excused(block.text):
            return
        elif block.language == "sql":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(text)  # type: ignore[call-overload]
        elif block.language == "python":
            self.said.append(printed(lambda: exec(compile(text, self.page, "exec"), {"__name__": "__main__"})))
        else:
            for line in block.lines():
                if not self._is_excused(line):
                    self._command(self._ours(line), self.exit_codes.get(line, 0))

    def _ours(self, text: str) -> str:
        for theirs, ours in {ADDRESS: self.url, **self.replaced}.items():
            text = text.replace(theirs, ours)
        return text

    def _is_excused(self, text: str) -> bool:
        return any(text.startswith(beginning) for beginning in self.excused)

    def _command(self, line: str, wanted: int) -> None:
        words = [os.path.expandvars(word) for word in shlex.split(line, comments=True)]
        if words[0] == "walrelay" and not set(words) & {"|", ">", "&&", "<"}:
            done = CliRunner().invoke(app, words[1:])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            assert done.exit_code == wanted, f"{line}\n{done.output}"
            self.said.append(done.stdout)
        elif words[0] == "python" and words[1].endswith(".py"):
            self.said.append(printed(lambda: run_script(words[1:])))
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            ran = subprocess.run(
                ["bash", "-ec", line], capture_output=True, text=True, cwd=self.directory,
                env={**os.environ, "PATH": path}, check=False,
            )  # fmt: skip
            assert ran.returncode == wanted, f"{line}\n{ran.stdout}{ran.stderr}"
            self.said.append(ran.stdout)


def printed(does: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        does()
    return out.getvalue()


def run_script(words: list[str]) -> None:
    """A file in the reader's folder, which may import others from there."""
    before = set(sys.modules)
    arguments, sys.argv = sys.argv, words
    sys.path.insert(0, ".")
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.path.remove(".")
        sys.argv = arguments
        for name in set(sys.modules) - before:
            if (Path.cwd() / f"{name}.py").exists():
                del sys.modules[name]


def sharing_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands leave the session running for the next one: in a process of its own each would start a JVM."""
    monkeypatch.setattr(replicate, "stop_session", lambda: None)


@contextlib.contextmanager
def free_slots(url: str) -> Iterator[None]:
    """Slots that the page leaves behind are dropped, so that the database can be."""
    try:
        yield
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
