"""A URL of S3, or of a store that speaks like it, → pyarrow's file system, with the settings a log needs."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import pyarrow.fs as pafs

from walrelay.errors import ConfigError


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "allow_bucket_creation": _flag,
    "connect_timeout": float,
    "endpoint_override": str,
    "force_virtual_addressing": _flag,
    "max_attempts": int,
    "region": str,
    "request_timeout": float,
    "scheme": str,
    "tls_ca_file_path": str,
}
"""What may stand in the query: pyarrow's options of its S3FileSystem, by its names (its `from_uri` knows fewer).

And `max_attempts`, how often one request is tried: 3 unless told.
"""


def s3_filesystem(url: str) -> tuple[pafs.FileSystem, str]:
    """The file system, and the bucket and prefix in it. Asks AWS for the bucket's region unless the URL tells it."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        raise ConfigError("the log's URL names no bucket", hint="Write it as s3://bucket/prefix.")
    bucket = parts.netloc.rpartition("@")[2]
    options = _options(parts.query)
    if parts.username:
        options["access_key"] = urllib.parse.unquote(parts.username)
        options["secret_key"] = urllib.parse.unquote(parts.password or "")
    if "region" not in options and "endpoint_override" not in options:
        options["region"] = pafs.resolve_s3_region(bucket)
    attempts = options.pop("max_attempts", None)
    if attempts is not None:
        options["retry_strategy"] = pafs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    files = pafs.S3FileSystem(
        **options,
        # A small object in one request; else it takes three.
        allow_delayed_open=True,
    )
    return files, bucket + urllib.parse.unquote(parts.path)


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {name!r} in the log's URL", hint=f"There are: {', '.join(OPTIONS)}.")
        try:
            options[name] = OPTIONS[name](text)
        except ValueError as error:
            raise ConfigError(f"the option {name!r} in the log's URL has a value that it cannot have") from error
    return options
