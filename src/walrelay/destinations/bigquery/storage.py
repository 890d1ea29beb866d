"""Google's storage, when load files are to go through it: one load job then takes all of a table's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import Any
from uuid import uuid4

from walrelay.errors import ConfigError, DestinationNotWritableError

_PIECE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bucket:
    """`gs://bucket/prefix`; written with the credentials of the environment."""

    url: str

    def __post_init__(self) -> None:
        if not self.url.startswith("gs://") or not self.url.removeprefix("gs://").strip("/"):
            raise ConfigError(f"not a place in Google's storage: {self.url}", hint="Write staging=gs://bucket/prefix.")

    def _filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import GcsFileSystem

        return GcsFileSystem(), self.url.removeprefix("gs://").rstrip("/")

    def check(self) -> None:
        """That an object can be written and removed."""
        with self._writing() as (filesystem, root):
            place = f"{root}/walrelay-{uuid4().hex}"
            with filesystem.open_output_stream(place) as target:
                target.write(b"walrelay")
            filesystem.delete_file(place)

    @contextmanager
    def holding(self, name: str, files: Sequence[Path]) -> Iterator[list[str]]:
        """The files' addresses there, for as long as they are."""
        with self._writing() as (filesystem, root):
            places = [f"{root}/{name}/{number}.parquet" for number, _ in enumerate(files)]
            for place, file in zip(places, files, strict=True):
                with file.open("rb") as source, filesystem.open_output_stream(place) as target:
                    copyfileobj(source, target, _PIECE)
        try:
            yield [f"gs://{place}" for place in places]
        finally:
            with suppress(OSError):  # a lifecycle rule of the bucket removes what a dead run leaves
                filesystem.delete_dir(f"{root}/{name}")

    @contextmanager
    def _writing(self) -> Iterator[tuple[Any, str]]:
        try:
            yield self._filesystem()
        except OSError as error:
            raise DestinationNotWritableError(
                f"cannot write to {self.url}", hint="Check that the bucket exists, and that you may write to it."
            ) from error
