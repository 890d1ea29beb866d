"""The JSON schema of a configuration, by which editors explain and complete it."""

from __future__ import annotations

from typing import Any, Final

from walrelay.config.sections import PipelineConfig

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """As data. A text may be a reference wherever a text may stand."""
    made = PipelineConfig.model_json_schema(mode="validation", by_alias=True)
    return {"$schema": _DIALECT, **made, "title": "walrelay pipeline"}
