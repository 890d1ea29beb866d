"""Every key that a configuration can have, with what is said about it: for the environment, for `config show`, for the
page of them all."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from walrelay.config.said import Path
from walrelay.config.sections import PipelineConfig

ENVIRONMENT = "WALRELAY_"


@dataclass(frozen=True)
class Key:
    """A key of a section, or a section that is one value."""

    path: Path
    variable: str
    """Of the environment."""
    field: FieldInfo

    @property
    def is_free(self) -> bool:
        """Whether it is made of more keys, or of a list: in the environment it is written as YAML."""
        return any(get_origin(one) in (dict, tuple, list) for one in kinds(self.field.annotation))

    @property
    def default(self) -> Any:
        return self.field.get_default(call_default_factory=True) if not self.field.is_required() else None


@cache
def all_keys() -> tuple[Key, ...]:
    """In the order of the sections."""
    return tuple(_keys())


def _keys() -> Iterator[Key]:
    for name, field in PipelineConfig.model_fields.items():
        section = model_of(field.annotation)
        if section is None:
            yield Key((name,), f"{ENVIRONMENT}{name.upper()}", field)
            continue
        prefix = str(section.model_config.get("env_prefix") or f"{ENVIRONMENT}{name.upper()}_")
        # What a section adds comes before what it shares with others.
        for key, inner in sorted(
            section.model_fields.items(), key=lambda item: item[0] not in vars(section)["__annotations__"]
        ):
            yield Key((name, inner.alias or key), f"{prefix}{key.upper()}", inner)


def kinds(annotation: Any) -> Iterator[Any]:
    """The alternatives of a type, without what is noted beside them."""
    if get_origin(annotation) is Annotated:
        yield from kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from kinds(one)
    else:
        yield annotation


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The section that the type is, or that it may be."""
    for kind in kinds(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def annotation_at(path: Path) -> Any:
    """The type of what stands at the path; None where there is no such key."""
    found: Any = PipelineConfig
    for step in path:
        found = _inside(found, step)
    return found


def names_at(path: Path) -> tuple[str, ...]:
    """The keys that may stand below the path; none where any may."""
    model = model_of(annotation_at(path))
    return () if model is None else tuple(field.alias or name for name, field in model.model_fields.items())


def _inside(annotation: Any, step: str | int) -> Any:
    for kind in kinds(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {field.alias or name: field for name, field in kind.model_fields.items()}
            return fields[step].annotation if isinstance(step, str) and step in fields else None
        if get_origin(kind) is dict:
            return get_args(kind)[1]
        if get_origin(kind) in (tuple, list):
            return get_args(kind)[0]
    return None


_WORDS = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    timedelta: "time (30s, 10m, 1h, 7d, or seconds)",
    SecretStr: "text, never shown",
}


def type_in_words(annotation: Any, *, size: bool = False) -> str:
    """What may stand there, for people."""
    words = []
    for kind in kinds(annotation):
        if get_origin(kind) is Literal:
            words += [f"`{one}`" for one in get_args(kind)]
        elif get_origin(kind) in (tuple, list):
            words.append("list")
        elif get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
            words.append("mapping")
        elif kind is not type(None):
            words.append(_WORDS.get(kind, "path"))
    return ", ".join(dict.fromkeys(["size (64MiB, or bytes)"] if size else words))
