"""What makes a pipeline unlike every other one, also of the same id (SEMANTICS 27)."""

from __future__ import annotations

import uuid

from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore

_FACT = "name"


def known_name(store: PipelineStore) -> str | None:
    """The name that the pipeline was given when it first ran."""
    found = store.get_facts(_FACT).get(WHOLE_PIPELINE)
    return found if isinstance(found, str) else None


def unique_name(store: PipelineStore, pipeline_id: str) -> str:
    """The pipeline's name, made when there is none yet; for the holder of the pipeline's lock."""
    name = known_name(store)
    if name is None:
        name = f"{pipeline_id}-{uuid.uuid4().hex[:8]}"
        store.store_fact(WHOLE_PIPELINE, _FACT, name)
    return name


def plain_name(pipeline: str) -> str:
    """What people call the pipeline: its name without what makes it unlike others."""
    return pipeline.rpartition("-")[0] or pipeline
