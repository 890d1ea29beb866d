"""A YAML file as values with their lines. As in YAML 1.2, `yes`, `on` and `10:30` are texts; a key stands once."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any, Final

import yaml

from walrelay.config.problems import Problem, ProblemsError
from walrelay.config.references import BadReferenceError, has_reference, resolved
from walrelay.config.said import Origin, Path, Said

_MOST_NODES: Final = 100_000
"""Aliases of aliases can make a small file large."""
_SHAPE_HINT: Final = "A configuration is made of sections, as `walrelay init` writes it."
_YAML_HINT: Final = "Keys of a section stand below it, each on its own line, indented by the same number of spaces."
_FREE_TEXT: Final = ({"spark"}, {("log", "location")})
"""Sections and keys whose values may begin with `file:` themselves."""


class _Loader(yaml.SafeLoader):
    """Knows null, booleans and numbers as YAML 1.2 has them, and no dates, octal or sexagesimal numbers."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # as the base has it


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def said_in_file(file: str | FilePath) -> Said:
    """What a file says. Raises `ProblemsError`."""
    name = str(file)
    try:
        text = FilePath(file).read_text(encoding="utf-8")
    except OSError as error:
        hint = "Check the path after -c; `walrelay init` writes a first configuration."
        raise _problem(Origin(name), f"the file cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise _problem(Origin(name), "the file is no text in UTF-8", "Save it as UTF-8.") from error
    return said_in_text(text, name)


def said_in_text(text: str, name: str, path: Path = ()) -> Said:
    """What a text says of the key at `path`. `name` is what its lines are lines of. Raises `ProblemsError`."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        what = f"not YAML: {error.problem or 'it cannot be read'}"
        raise _problem(Origin(name, line), what, _YAML_HINT) from error
    except yaml.YAMLError as error:
        raise _problem(Origin(name), "not YAML: it has characters that a text does not have", _YAML_HINT) from error
    if node is None:
        return Said({}, Origin(name, 1))
    walk = _Walk(name)
    made = walk.said(node, path, walk.origin(node))
    if not isinstance(made.value, dict) and not path:
        raise _problem(made.origin, "this is no mapping of sections", _SHAPE_HINT)
    if walk.problems:
        raise ProblemsError(*walk.problems)
    return made


class _Walk:
    """One walk over a document; what is wrong is collected."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self._around: list[yaml.Node] = []
        self.problems: list[Problem] = []

    def origin(self, node: yaml.Node) -> Origin:
        return Origin(self._name, node.start_mark.line + 1)

    def said(self, node: yaml.Node, path: Path, origin: Origin) -> Said:
        self._nodes += 1
        if self._nodes > _MOST_NODES or any(node is one for one in self._around):
            raise ProblemsError(Problem(path, origin, "it is too large, or holds itself", "Write it without aliases."))
        self._around.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return Said(self._mapping(node, path), origin)
            if isinstance(node, yaml.SequenceNode):
                entries = enumerate(node.value)
                return Said([self.said(one, (*path, at), self.origin(one)) for at, one in entries], origin)
            return self._scalar(node, path, origin)
        finally:
            self._around.pop()

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Said]:
        made: dict[str, Said] = {}
        for key, value in node.value:
            origin = self.origin(key)
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(path, origin, "a key is a word, not a list or a mapping", _YAML_HINT)
                continue
            name = str(key.value)
            if name in made:
                what = f"the key stands in {made[name].origin} already"
                self._refuse((*path, name), origin, what, "Keep one of them.")
                continue
            made[name] = self.said(value, (*path, name), origin)
        return made

    def _scalar(self, node: yaml.Node, path: Path, origin: Origin) -> Said:
        text = str(node.value)
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "null":
                return Said(None, origin)
            case "bool":
                return Said(text.lower() == "true", origin)
            case "int":
                return Said(_number(text, int), origin)
            case "float":
                return Said(_number(text, float), origin)
            case "str":
                return self._text(text, path, origin)
            case _:
                self._refuse(path, origin, "this version knows no tags", "Leave out the word that begins with !.")
                return Said(None, origin)

    def _text(self, text: str, path: Path, origin: Origin) -> Said:
        try:
            return text_said(text, path, origin)
        except BadReferenceError as error:
            self._refuse(path, origin, str(error), reference_hint(text))
            return Said(None, origin)

    def _refuse(self, path: Path, origin: Origin, what: str, hint: str) -> None:
        self.problems.append(Problem(path, origin, what, hint))


def text_said(text: str, path: Path, origin: Origin) -> Said:
    """A text with its references followed. Raises `BadReferenceError`."""
    sections, keys = _FREE_TEXT
    whole_files = not (path and (path[0] in sections or path in keys))
    if not has_reference(text, whole_files=whole_files):
        return Said(text, origin)
    return Said(resolved(text, whole_files=whole_files), origin, is_referenced=True)


def reference_hint(text: str) -> str:
    """What to do about a reference that leads nowhere."""
    if "${" in text and "file:" not in text:
        return "Set the variable, or write ${VARIABLE:-default}; $${ is written for ${ itself."
    return "Check the path, and that the file may be read."


def _number(text: str, kind: type[int] | type[float]) -> Any:
    """Python refuses numbers of thousands of digits, which no key takes either."""
    try:
        return kind(text)
    except ValueError:
        return text


def _problem(origin: Origin, what: str, hint: str) -> ProblemsError:
    return ProblemsError(Problem((), origin, what, hint))
