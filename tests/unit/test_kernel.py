"""Kernels: numba comes when the first one is called, and from then on nothing stands between."""

from __future__ import annotations

import subprocess
import sys

WHOLE = """
import sys
import walrelay.pipeline, walrelay.cli.replicate, walrelay.cli.status
print("numba" in sys.modules)
"""

CALLED = """
import sys, threading
import numpy as np
from walrelay.decode import fixed
from walrelay.decode.base import ARROW, Fields, Tally
from walrelay.decode.registry import decoder_for
from walrelay.model.schema import PgType
from walrelay.wire import kernel
held = fixed.read_4
assert type(held) is kernel.Kernel and type(kernel.be32) is kernel.Kernel and "numba" not in sys.modules
assert not hasattr(held, "__wrapped__") and "numba" not in sys.modules
found, start = [], threading.Barrier(4)
def decode():
    start.wait()
    decoder = decoder_for(PgType(23, "int4"), ARROW)
    found.append(decoder.decode(Fields.of([bytes([0, 0, 1, 2]), None]), Tally(ARROW)).to_pylist())
threads = [threading.Thread(target=decode) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert found == [[258, None]] * 4, found
assert type(fixed.read_4) is type(kernel.be32) is not kernel.Kernel
assert held.signatures == fixed.read_4.signatures != []
out = np.empty(1, np.int32)
assert held(np.full(4, 1, np.uint8), np.zeros(1, np.int64), np.full(1, 4, np.int32), out, np.zeros(1, np.uint8)) == -1
assert out[0] == 0x01010101
import walrelay.decode.hstore
assert type(walrelay.decode.hstore.put_hstore) is not kernel.Kernel
print("good")
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_who_only_plans_does_not_wait_for_numba() -> None:
    assert run(WHOLE) == "False"


def test_the_first_call_from_any_thread_puts_the_compiled_ones_in_place() -> None:
    assert run(CALLED) == "good"
