"""Secrets taken out of texts that people see, and references put in their place in texts that are kept."""

from __future__ import annotations

import re
from collections.abc import Callable

MASK = "********"
_SECRET_NAME = re.compile(r"pass|secret|token|key|credential|salt|signature", re.IGNORECASE)
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>.*)\Z", re.DOTALL)
_OPTION = re.compile(r"(?P<before>[?&](?P<name>[^=&?]+)=)(?P<value>[^&]*)")
_WORD = re.compile(r"(?P<before>\b(?P<name>\w*pass\w*)\s*=\s*)(?P<value>'(?:[^'\\]|\\.)*'|[^\s']\S*)", re.IGNORECASE)
_HARMLESS = re.compile(r"[a-z][a-z0-9+]*:[\w./~-]*\Z")


def is_secret_name(name: str) -> bool:
    """Whether what is called so is probably not for everybody."""
    return _SECRET_NAME.search(name) is not None


def masked_url(text: str) -> str:
    """A URL, or libpq's `key=value` words, without password and other secrets."""
    return with_secrets_replaced(text, lambda _name: MASK)


def with_secrets_replaced(text: str, by: Callable[[str], str]) -> str:
    """The text with `by(name)` for each secret: the password is called `password`, an option by its own name."""
    url = _URL.match(text)
    if url is None:
        if "=" in text:
            return _WORD.sub(lambda found: found["before"] + by(found["name"]), text)
        return text if _HARMLESS.match(text) else by("password")
    # An unescaped @ or / in a password: what stands before the last @ is taken for its part.
    who, at, rest = url["rest"].rpartition("@")
    user, _, password = who.partition(":")
    if password:
        who = f"{user}:{by('password')}"
    return url["scheme"] + who + at + _OPTION.sub(lambda found: _option(found, by), rest)


def _option(found: re.Match[str], by: Callable[[str], str]) -> str:
    return found["before"] + (by(found["name"]) if is_secret_name(found["name"]) else found["value"])
