"""Compile every kernel once, in set-up, so that no user waits for it: `python -m walrelay.decode.warm`.

numba keeps machine code beside the source and drops it when that one file changes. A kernel also contains the code of
kernels it calls from other files, so here all of it is dropped when any file of the two packages has changed.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from walrelay.decode.base import ARROW, TEXT, Fields, Tally, Target
from walrelay.decode.registry import BUILTIN, EXTENSION, decoder_for
from walrelay.errors import BadBytesError
from walrelay.model.schema import PgType, TypeField
from walrelay.wire.copy_binary import CopyBuffer

_PACKAGES = (Path(__file__).parent, Path(__file__).parent.parent / "wire")
_STAMP = "kernels.sha256"


def sample_types() -> list[PgType]:
    """A type for every row of the registry."""
    int4 = PgType(23, "int4")
    base = [PgType(0, name) for name in BUILTIN]
    extensions = [PgType(0, name, schema="public", extension=owner) for owner, name in EXTENSION]
    span = PgType(0, "int4range", kind="range", element=int4)
    return [
        *base,
        *extensions,
        PgType(0, "numeric", modifier=((10 << 16) | 2) + 4),
        PgType(0, "_int4", kind="array", element=int4),
        PgType(0, "pair", kind="composite", fields=(TypeField("a", int4),)),
        span,
        PgType(0, "int4multirange", kind="multirange", element=span),
    ]


def warm(target: Target) -> None:
    """Run every decoder once over a NULL and over bytes that no type takes in full; running is what compiles."""
    for type_ in sample_types():
        decoder = decoder_for(type_, target)
        for values in (
            [None, None],
            [b"\x01" + b"\0" * 15, b"\x01" + b"\0" * 15],
            [b"\0" * 8, None],
            [b"\xc3\xa9"] * 2,
        ):
            try:
                decoder.decode(Fields.of(list(values)), Tally(target))
            except BadBytesError:
                continue


def warm_walk() -> None:
    buffer = CopyBuffer(1, framed=False, capacity=64)
    stream = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1\xff\xff\xff\xff" + b"\xff\xff"
    buffer.room()[: len(stream)] = stream
    buffer.received(len(stream))
    buffer.rows()


def drop_stale() -> None:
    """Remove machine code compiled from sources that have changed since."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for source in sorted(package.glob("*.py")):
            digest.update(source.read_bytes())
    stamp = _PACKAGES[0] / "__pycache__" / _STAMP
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    for package in _PACKAGES:
        for compiled in (package / "__pycache__").glob("*.nb[ic]"):
            compiled.unlink(missing_ok=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(digest.hexdigest())


def main() -> None:
    begun = time.monotonic()
    drop_stale()
    warm_walk()
    warm(ARROW)
    warm(TEXT)
    sys.stdout.write(f"kernels ready after {time.monotonic() - begun:.1f} s\n")


if __name__ == "__main__":
    main()
