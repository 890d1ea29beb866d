"""How often a lake is written: each batch makes files, and a version of the table, and takes seconds."""

from __future__ import annotations

from datetime import timedelta

from walrelay.config.settings import MiB
from walrelay.destinations.capabilities import Batching

LAKE_BATCHING = Batching(every=timedelta(seconds=10), bytes=512 * MiB, piece_bytes=256 * MiB)
