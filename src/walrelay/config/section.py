"""What the sections of a configuration have in common when no environment makes them by itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from walrelay.config.settings import not_a_truth


class Section(BaseModel):
    """Strict and frozen; the text below a key explains it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_by_name=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        return not_a_truth(cls, value, info)
