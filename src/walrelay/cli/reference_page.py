"""The page of all commands, docs/reference/cli.md, made from the commands: `python -m walrelay.cli.reference_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from walrelay.cli.app import app

PAGE: Final = Path("docs/reference/cli.md")
_BEGINNING: Final = """\
# Command line

Made from the commands by `python -m walrelay.cli.reference_page`; do not edit. `walrelay COMMAND --help` says the same.

Exit code 0 means that all is well, 1 an error ([all error codes](../errors.md)), 2 a wrong command line, 130 that
Ctrl-C interrupted a command which does not end in order by itself. Other codes stand with their command.
"""
_ON_ITS_OWN: Final = "[default: "


def render() -> str:
    """The page."""
    root: Any = get_command(app)
    parts = [_BEGINNING, "\n".join(_table("Option", "Of every command", [_row(one) for one in _options(root)]))]
    parts += ["\n".join(_section(words, command)) for words, command in commands(root, "walrelay")]
    return "\n".join(parts)


def commands(group: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


def _section(words: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = [one.metavar or one.name.upper() for one in arguments]
    yield f"## {words}\n"
    yield f"```text\n{' '.join([words, *usage, '[OPTIONS]'])}\n```\n"
    yield f"{_in_one_line(command.help)}\n"
    if arguments:
        yield from _table(
            "Argument", "What it is", [(one.metavar or one.name.upper(), one.help or "") for one in arguments]
        )
    yield from _table("Option", "What it does", [_row(one) for one in _options(command)])


def _options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option" and not one.hidden]


def _row(option: Any) -> tuple[str, str]:
    takes = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    said = option.help or ""
    if option.required:
        said += " Required."
    elif (
        option.show_default and not option.is_flag and option.default not in (None, "", ()) and _ON_ITS_OWN not in said
    ):
        said += f" {_ON_ITS_OWN}{option.default}]"
    return option.opts[0] + takes, said


def _table(first: str, second: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"| {first} | {second} |"
    yield "| --- | --- |"
    for name, said in rows:
        cells = (f"`{name}`", _in_one_line(said).replace("|", "\\|").replace("<", "&lt;"))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _in_one_line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(render(), encoding="utf-8")
