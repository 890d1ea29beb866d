"""References in a configuration's texts: `${VARIABLE}`, `${VARIABLE:-default}`, `${file:/run/secrets/x}`, and a whole
value `file:/run/secrets/x`. `$${` is `${` itself."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_IN_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@:]*:[^/?#@]*\Z")
_IN_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^#]*[?&][^=&#]+=\Z")
_BEFORE_HOST = re.compile(r"[^/?#@]*@")
_FILE = "file:"


class BadReferenceError(ValueError):
    """A reference that leads nowhere. The message names it."""


def resolved(text: str, *, whole_files: bool = True) -> str:
    """The text with what its references lead to. In the place of a URL's password or option it is escaped, so that a
    password is given as it is. Without `whole_files` a text that begins with `file:` is no reference. Raises
    `BadReferenceError`."""
    if whole_files and text.startswith(_FILE):
        return _content(resolved(text[len(_FILE) :], whole_files=False))
    made, at = "", 0
    for match in _REFERENCE.finditer(text):
        before = text[at : match.start()]
        at = match.end()
        made += before
        if match[0] == "$${":
            made += "${"
        elif match[1] is None:
            raise BadReferenceError("a reference begins with ${ and does not end with }")
        else:
            found = _referred(match[1])
            is_password = _IN_PASSWORD.match(made) and _BEFORE_HOST.match(_without_references(text[at:]))
            made += quote(found, safe="") if is_password or _IN_OPTION.match(made) else found
    return made + text[at:]


def has_reference(text: str, *, whole_files: bool = True) -> bool:
    return "${" in text or (whole_files and text.startswith(_FILE))


def _without_references(text: str) -> str:
    return _REFERENCE.sub("", text)


def _referred(inside: str) -> str:
    if inside.startswith(_FILE):
        return _content(inside[len(_FILE) :])
    match = _NAME.match(inside)
    if match is None:
        raise BadReferenceError("a reference is written ${VARIABLE}, ${VARIABLE:-default} or ${file:/path}")
    name, default = match[1], match[2]
    found = os.environ.get(name)
    if default is not None:
        return found or default
    if found is None:
        raise BadReferenceError(f"the environment has no variable {name}")
    return found


def _content(path: str) -> str:
    """The file's text, without the end of its last line."""
    file = Path(path.removeprefix("//"))
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise BadReferenceError(f"the file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadReferenceError(f"the file {file} is no text in UTF-8") from error
