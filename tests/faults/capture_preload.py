"""Imported by the process from which captures are forked: loads all compiled code, so that each fork has it at once."""

from __future__ import annotations

import numpy as np
import pytest  # noqa: F401 - multiprocessing imports the main program again in each fork, which is pytest

import tests.faults.capture_kit  # noqa: F401
from walrelay.decode.base import ARROW
from walrelay.decode.warm import ensure_warm, warm
from walrelay.wire.pgoutput import MessageWalker, whole_frames
from walrelay.wire.replication import StreamCutter

NOTHING = np.zeros(0, dtype=np.uint8)

ensure_warm(lambda _message: None)
warm(ARROW)
whole_frames(NOTHING)
list(StreamCutter().pieces())
list(MessageWalker().walk_whole(NOTHING, 0, 0, 0))
