"""The page of commands is what the commands say."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from walrelay.cli.app import app
from walrelay.cli.reference_page import PAGE, commands, render

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_one_that_the_commands_make() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(), "run `python -m walrelay.cli.reference_page`"


def test_every_command_with_all_its_options_is_on_it() -> None:
    page = render()
    found = list(commands(get_command(app), "walrelay"))
    assert len(found) > 15
    for words, command in found:
        section = page.split(f"## {words}\n")[1].split("\n## ")[0]
        shown = CliRunner().invoke(app, [*words.split()[1:], "--help"], env={"COLUMNS": "200"}).stdout
        options = set(re.findall(r"^  (--[a-z-]+)", shown, re.M))
        assert options - {"--help"} <= set(section.replace("`", " ").split()), words
        assert command.help
