"""The small facts that a store keeps, and what a person asks of a pipeline among them: whoever runs the pipeline finds
it there, now or at the next start."""

from __future__ import annotations

import time
from typing import Any, Final, Literal

from walrelay.model.names import TableId
from walrelay.stores.base import WHOLE_PIPELINE, StateStore

WANTED: Final = "wanted"
"""About a table: what is to be done with it."""
PAUSED: Final = "paused"
"""About the pipeline: since when nothing is to be written to the destination."""
DESTINATION: Final = "destination"
"""About the pipeline: which destination it keeps current."""
HEAD: Final = "head"
"""About the pipeline: where the log's head was when it ended with everything applied."""
ENDED: Final = "ended"
"""About the pipeline: the error that ended its last run."""

SHAPED: Final = "shaped"
"""About a table: by which name it got its options, and what these were, when its rows came to the destination."""

Wish = Literal["resync", "rollback"]


def wish(store: StateStore, table: TableId, what: Wish) -> None:
    store.store_fact(table, WANTED, {"what": what, "at": time.time()})


def paused_since(store: StateStore) -> float | None:
    """Since when the pipeline is to pause, in seconds since 1970; None when it is not."""
    found: Any = store.get_facts(PAUSED).get(WHOLE_PIPELINE)
    return None if found is None else float(found["since"])
