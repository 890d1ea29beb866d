"""A first configuration, commented, out of five answers. Secrets in them become references."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Final

from walrelay.config.masking import with_secrets_replaced
from walrelay.config.references import has_reference

_TEMPLATE: Final = """\
# A pipeline of walrelay's. Run it:     walrelay run -c {file}
# Is it right?                          walrelay config check -c {file}
# What holds, and who said it:          walrelay config show -c {file}
# Every key: docs/reference/config.md. Each can also be set in the environment, as in WALRELAY_SOURCE_URL.
# ${{VARIABLE}}, ${{VARIABLE:-default}} and file:/run/secrets/x stand for what is elsewhere, such as a password.

source:
  url: {source}
  publication: {publication}
  # slot: shop_slot  # without it the pipeline has one of its own

destination:
  url: {destination}

# What the pipeline must remember. It has to outlive the process, and the machine if you can.
store:
  {store_key}: {store}

pipeline:
  # both: copy all tables and keep them current. copy: copy them once. changes: every change from now on.
  mode: both
  {every}

# log:
#   location: s3://bucket/prefix  # where changes wait; without it beside the state
#   retain_age: 7d

# spark:
#   spark.driver.memory: 2g
"""
_EVERY: Final = "# every: 10s  # how often changes are taken in; without it as often as the destination likes"


@dataclass(frozen=True)
class Answers:
    """What a first configuration is made of."""

    source: str = field(repr=False)
    publication: str
    destination: str = field(repr=False)
    store: str = field(repr=False)
    """A directory, or the URL of a Postgres."""
    every: str | None = None


@dataclass(frozen=True)
class FirstConfig:
    """The text of a file, and the variables that it refers to in place of secrets."""

    text: str
    variables: tuple[str, ...]


def first_config(answers: Answers, file: str) -> FirstConfig:
    """The file that says so. No secret of the answers is in it."""
    variables: list[str] = []
    kept = replace(
        answers,
        source=_without_secrets(answers.source, "PGPASSWORD", "SOURCE", variables),
        destination=_without_secrets(answers.destination, "DESTINATION_PASSWORD", "DESTINATION", variables),
        store=_without_secrets(answers.store, "STORE_PASSWORD", "STORE", variables),
    )
    text = _TEMPLATE.format(
        file=file,
        source=_quoted(kept.source),
        publication=_quoted(kept.publication),
        destination=_quoted(kept.destination),
        store_key="url" if is_database(kept.store) else "path",
        store=_quoted(kept.store),
        every=f"every: {_quoted(kept.every)}" if kept.every else _EVERY,
    )
    return FirstConfig(text, tuple(dict.fromkeys(variables)))


def is_database(store: str) -> bool:
    """Whether the answer names a Postgres, and no directory."""
    return store.startswith(("postgresql:", "postgres:"))


def _without_secrets(text: str, password: str, prefix: str, variables: list[str]) -> str:
    if "://" not in text and "=" not in text:
        return text

    def reference(name: str) -> str:
        variable = password if name == "password" else f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
        variables.append(variable)
        return f"${{{variable}}}"

    return text if has_reference(text) else with_secrets_replaced(text, reference)


def _quoted(text: str) -> str:
    """As YAML: plain where nothing in it means something else."""
    plain = re.fullmatch(r"[A-Za-z][\w./-]*", text) and text.lower() not in ("null", "true", "false")
    return text if plain else json.dumps(text, ensure_ascii=False)
