"""The options of tables as a file writes them, and the `TableOptions` that they are."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from textwrap import dedent
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from walrelay.config.section import Section
from walrelay.config.settings import null_by_name
from walrelay.model.special import SpecialValues
from walrelay.model.table_options import (
    Hash,
    History,
    KeepLast,
    Mask,
    OnRemoved,
    OnSchemaChange,
    OnSilentChange,
    Rename,
    TableOptions,
    WithConstant,
    WithNull,
)


class RenameKeys(Section):
    """Names at the destination. `{schema}` and `{table}` stand for the source's, as in `raw_{table}`."""

    schema_: str | None = Field(None, alias="schema")
    """The schema's name there."""

    table: str | None = None
    """The table's name there. For a pattern of several tables it holds `{table}`."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Columns: the source's name, and the one there."""


class HashKeys(Section):
    """Columns that arrive as a hash; also written as a list of them."""

    columns: tuple[str, ...]
    """Their names."""

    salt: SecretStr = SecretStr("")
    """Put before each value, so that who knows a value cannot look its hash up. Best a reference: `${SALT}`."""


class MaskKeys(Section):
    """What arrives in place of a column's values: one of these, or null."""

    constant: str | int | float | bool | None = None
    """This value in place of every other."""

    keep_last: int | None = Field(None, ge=1)
    """So many characters at the end stay, those before them become asterisks."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.constant is None) == (self.keep_last is None):
            raise ValueError("a mask is null, constant or keep_last, one of them")
        return self

    def mask(self) -> Mask:
        if self.keep_last is not None:
            return KeepLast(self.keep_last)
        assert self.constant is not None
        return WithConstant(self.constant)


def _hash_form(value: object) -> object:
    return {"columns": value} if isinstance(value, list | tuple) else value


def _mask_form(value: object) -> object:
    return dict.fromkeys(value) if isinstance(value, list | tuple) else value


def _history_form(value: object) -> object:
    return {True: "changes", False: "off"}[value] if isinstance(value, bool) else value


Columns = list[str]
HashForm = Annotated[HashKeys, BeforeValidator(_hash_form, json_schema_input_type=HashKeys | Columns)]
MaskForm = Annotated[
    dict[str, MaskKeys | None],
    BeforeValidator(_mask_form, json_schema_input_type=dict[str, MaskKeys | None] | Columns),
]
HistoryForm = Annotated[History, BeforeValidator(_history_form, json_schema_input_type=bool | Literal["scd2"])]

NullByName = Annotated[SpecialValues | None, BeforeValidator(null_by_name, json_schema_input_type=SpecialValues | None)]


@cache
def _meanings() -> dict[str, str]:
    """What `TableOptions` says of each of its options: it stands there alone."""
    body = ast.parse(dedent(inspect.getsource(TableOptions))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(one.target)] = inspect.cleandoc(str(after.value.value))
    return found


def _option(name: str) -> Any:
    return Field(None, description=_meanings()[name])


class TableKeys(Section):
    """What is said of the tables that a pattern names."""

    include: bool | None = _option("include")
    rename: RenameKeys | None = _option("rename")
    columns: tuple[str, ...] | None = _option("columns")
    leave_out: tuple[str, ...] | None = _option("leave_out")
    hash: HashForm | None = _option("hash")
    mask: MaskForm | None = _option("mask")
    soft_deletes: bool | None = _option("soft_deletes")
    history: HistoryForm | None = _option("history")
    on_schema_change: OnSchemaChange | None = _option("on_schema_change")
    on_removed: OnRemoved | None = _option("on_removed")
    on_silent_change: OnSilentChange | None = _option("on_silent_change")
    special_values: NullByName = _option("special_values")

    @model_validator(mode="after")
    def _says_no_contradiction(self) -> Self:
        self.options()
        return self

    def options(self) -> TableOptions:
        """The same, as the rest of the program knows it. Raises ValueError where they contradict each other."""
        plain = {name: getattr(self, name) for name in type(self).model_fields}
        if self.rename is not None:
            plain["rename"] = Rename(self.rename.schema_, self.rename.table, self.rename.columns)
        if self.hash is not None:
            plain["hash"] = Hash(self.hash.columns, self.hash.salt.get_secret_value())
        if self.mask is not None:
            plain["mask"] = {name: WithNull() if one is None else one.mask() for name, one in self.mask.items()}
        return TableOptions(**plain)
