"""Where the log's files are: a local directory, or a prefix on an object store.

Both give the two promises the log is built on (SEMANTICS 2): what `put` or `Sink.finish` (with `sync`) returned from is
there after a crash, and nobody ever sees half of what `put` writes.
"""

from __future__ import annotations

import os
import time
import urllib.parse
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from walrelay.errors import ConfigError
from walrelay.log.failures import log_failure, named, named_write

# Arrow takes a third of a second to load, which whoever only asks how a pipeline is need not wait for.
if TYPE_CHECKING:
    import pyarrow as pa

OBJECT_SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss")
"""Stores whose put is atomic. A distributed file system's is not (its files appear while they are being written)."""

_HIDDEN: Final = "."
_SECRET_WORDS: Final = ("key", "secret", "token", "password", "credential", "sig")
PRIVATE: Final = 0o600
"""The mode of files: they hold rows."""
LEFTOVER_SECONDS: Final = 60.0
"""A file that is being put for longer than this belongs to nobody."""


class Sink(Protocol):
    """A new file while it is written. Exactly one of `finish` and `abandon` ends it."""

    @property
    def file(self) -> Any:
        """What `pq.ParquetWriter` writes to; close the ParquetWriter, not the file, before `finish`."""

    def finish(self) -> int:
        """Make the content durable and return its bytes. On a local log the name is durable after `Storage.sync`."""

    def abandon(self) -> None:
        """Leave no file behind. Idempotent; never raises for a file that is gone; does nothing after `finish`."""


class Storage(Protocol):
    """A directory of files. Paths are relative, with `/`. Obligations:

    - `put` is atomic (a reader sees the old body or the new one, never a part) and durable when it returns.
    - A file of `sink` is durable after `Sink.finish`, and so is its name after `sync` of its directory.
    - `list` gives plain file names, sorted; files that are being put are not among them; a missing directory is empty.
    - `read` and `open` raise FileNotFoundError for what is not there; `delete` is idempotent.
    - Every other failure is a `LogError`. Directories come into being when they are needed.
    - Usable from several threads; picklable.
    """

    @property
    def local(self) -> bool:
        """Whether a kernel's locks and fsync are there."""

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there."""

    def read(self, path: str) -> bytes:
        """The whole file."""

    def list(self, directory: str) -> list[str]:
        """The names of the files right in `directory`."""

    def delete(self, path: str) -> None:
        """Remove a file; not necessarily durable before `sync`."""

    def sink(self, path: str) -> Sink:
        """Begin a file under its final name, replacing one that is there."""

    def sync(self, directory: str) -> None:
        """Make the names in `directory`, new and removed, durable. Nothing to do on an object store."""

    def sweep(self) -> None:
        """Remove what a process that died while it put a file has left; for the holder of the lease."""

    def open(self, path: str) -> pa.NativeFile:
        """The file for random access (`pq.ParquetFile`). It stays readable locally even when deleted meanwhile."""

    def location(self, path: str) -> str:
        """The full path or URL, for people and other programs; without credentials or options."""


def open_storage(url: str | Path) -> Storage:
    """The storage at a local path, a `file://` URL or an object store's URL. Makes and reads no file yet.

    Options of an object store come in the query, by pyarrow's names, e.g.
    `s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http`; credentials come from its own environment.
    """
    if isinstance(url, Path) or "://" not in url:
        return LocalStorage(Path(url))
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return LocalStorage(Path(urllib.parse.unquote(parts.path)))
    if parts.scheme not in OBJECT_SCHEMES:
        raise ConfigError(
            f"a log cannot be kept at {parts.scheme}://",
            hint=f"Use a local directory or one of {', '.join(name + '://' for name in OBJECT_SCHEMES)}.",
        )
    return ObjectStorage(url)


def public_url(url: str) -> str:
    """The URL without what may be a secret: credentials before the host, and options that are called like one."""
    if "://" not in url:
        return url
    parts = urllib.parse.urlsplit(url)
    given = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    shown = [(name, value) for name, value in given if not any(word in name.lower() for word in _SECRET_WORDS)]
    host = parts.netloc.rpartition("@")[2]
    if host == parts.netloc and shown == given:
        return url
    return urllib.parse.urlunsplit(parts._replace(netloc=host, query=urllib.parse.urlencode(shown)))


class LocalStorage:
    """A directory on this machine."""

    local = True

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    def put(self, path: str, body: bytes) -> None:
        target = self._root / path
        with named_write(str(target)):
            make_directory(target.parent)
            # The name is ours alone: two readers may record the same file at once.
            temporary = target.with_name(f"{_HIDDEN}{target.name}.{uuid.uuid4().hex}.tmp")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
            try:
                try:
                    _write_all(handle, body)
                    os.fsync(handle)
                finally:
                    os.close(handle)
                os.rename(temporary, target)  # noqa: PTH104 - the calls are the promise, and stand together
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            _sync_directory(target.parent)

    def read(self, path: str) -> bytes:
        with named(self.location(path)):
            return (self._root / path).read_bytes()

    def list(self, directory: str) -> list[str]:
        where = self._root / directory
        with named(str(where)):
            try:
                with os.scandir(where) as found:
                    return sorted(entry.name for entry in found if _is_file(entry))
            except FileNotFoundError:
                return []

    def delete(self, path: str) -> None:
        with named(self.location(path)):
            (self._root / path).unlink(missing_ok=True)

    def sink(self, path: str) -> LocalSink:
        target = self._root / path
        with named_write(str(target)):
            make_directory(target.parent)
            return LocalSink(target)

    def sync(self, directory: str) -> None:
        where = self._root / directory
        with named(str(where)), suppress(FileNotFoundError):
            _sync_directory(where)

    def sweep(self) -> None:
        old = time.time() - LEFTOVER_SECONDS
        with named(str(self._root)):
            for left in [*self._root.glob(".*.tmp"), *self._root.glob("*/.*.tmp")]:
                # A reader may be putting its position at this moment.
                with suppress(FileNotFoundError):
                    if left.stat().st_mtime < old:
                        left.unlink()

    def open(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        with named(self.location(path)):
            return pa.OSFile(str(self._root / path), "rb")

    def location(self, path: str) -> str:
        return str(self._root / path)


class LocalSink:
    """A data file on this machine, written under its final name: nobody looks at it before an entry names it."""

    def __init__(self, target: Path) -> None:
        import pyarrow as pa

        self._target = target
        # Opened before the first byte is written: fsync then reports every failed write-back since.
        self._handle: int | None = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        try:
            self.file: pa.NativeFile = pa.OSFile(str(target), "wb")
        except BaseException:
            os.close(self._handle)
            raise

    def finish(self) -> int:
        assert self._handle is not None, "finished or abandoned already"
        with named_write(str(self._target)):
            self.file.close()
            os.fsync(self._handle)
            size = os.fstat(self._handle).st_size
        os.close(self._handle)
        self._handle = None
        return size

    def abandon(self) -> None:
        if self._handle is None:
            return
        os.close(self._handle)
        self._handle = None
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._target.unlink()


class ObjectStorage:
    """A prefix on an object store."""

    local = False

    def __init__(self, url: str) -> None:
        import pyarrow as pa
        import pyarrow.fs as pafs

        from walrelay.log.s3 import s3_filesystem

        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{host}{parts.path}".rstrip("/")
        try:
            self._fs, root = s3_filesystem(url) if parts.scheme == "s3" else pafs.FileSystem.from_uri(url)
        except OSError as error:
            raise log_failure(error, self._url) from error
        except (ValueError, pa.ArrowException) as error:
            # pyarrow quotes the URL, which may hold a secret.
            raise ConfigError(f"not a URL of an object store that can be used: {self._url}") from _without_text(error)
        self._root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def put(self, path: str, body: bytes) -> None:
        with named_write(self.location(path)):
            stream = self._fs.open_output_stream(self._key(path), compression=None)
            stream.write(body)
            stream.close()

    def read(self, path: str) -> bytes:
        with named(self.location(path)), self._fs.open_input_stream(self._key(path), compression=None) as stream:
            return bytes(stream.read())

    def list(self, directory: str) -> list[str]:
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(self._key(directory), allow_not_found=True, recursive=False)
        with named(self.location(directory)):
            found = self._fs.get_file_info(selector)
        return sorted(
            info.base_name
            for info in found
            if info.type == pafs.FileType.File and info.base_name and not info.base_name.startswith(_HIDDEN)
        )

    def delete(self, path: str) -> None:
        # On S3 pyarrow also writes an empty object in the name of the directory: one more request, and harmless.
        with named(self.location(path)), suppress(FileNotFoundError):
            self._fs.delete_file(self._key(path))

    def sink(self, path: str) -> ObjectSink:
        with named_write(self.location(path)):
            return ObjectSink(self, path, self._fs.open_output_stream(self._key(path), compression=None))

    def sync(self, directory: str) -> None:
        pass

    def sweep(self) -> None:
        pass

    def open(self, path: str) -> pa.NativeFile:
        with named(self.location(path)):
            return self._fs.open_input_file(self._key(path))

    def location(self, path: str) -> str:
        return f"{self._url}/{path}" if path else self._url

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class ObjectSink:
    """A data file on an object store: there as a whole when `finish` returns."""

    def __init__(self, storage: ObjectStorage, path: str, file: pa.NativeFile) -> None:
        self._storage = storage
        self._path = path
        self._open = True
        self.file = file

    def finish(self) -> int:
        assert self._open, "finished or abandoned already"
        with named_write(self._storage.location(self._path)):
            size = int(self.file.tell())
            self.file.close()
        self._open = False
        return size

    def abandon(self) -> None:
        if not self._open:
            return
        self._open = False
        # pyarrow cannot call an upload off, it completes it even when the stream is dropped: close, then remove.
        with suppress(OSError):
            self.file.close()
        with suppress(Exception):
            self._storage.delete(self._path)


def _write_all(handle: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _is_file(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(_HIDDEN) and entry.is_file()


def make_directory(directory: Path) -> None:
    """Create the directory with its parents, durably, for our user alone; one that is there stays as it is."""
    missing: list[Path] = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _without_text(error: Exception) -> Exception:
    return type(error)("(text withheld)")
