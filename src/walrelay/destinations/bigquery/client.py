"""Google's client, with an end to its patience: jobs have ids of ours, so that a lost answer is found again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from walrelay.backoff import delays
from walrelay.destinations.bigquery.failures import Failed, bigquery_failures, in_our_words
from walrelay.errors import (
    ConfigError,
    DestinationThrottledError,
    DestinationUnreachableError,
    MissingExtraError,
    StoppedError,
    WalrelayError,
)

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, SchemaField
    from google.cloud.bigquery.table import RowIterator

REQUEST_SECONDS = 30.0
"""For one answer. Google's clients would ask a dead endpoint for ten minutes."""
PATIENCE_SECONDS = 60.0
"""For an answer with all its repetitions."""
UPLOAD_SECONDS = 600.0
"""For a file to be sent."""
TRIES = 5
"""How often a job is begun that failed by no fault of its own; then the batch fails, and comes again later."""
FIRST_DELAY = timedelta(seconds=1)
_POLL = (0.05, 2.0)
"""Seconds between two looks at a job, from and up to."""
_ONCE: Any = None
"""No repetition by Google's client: whether a job was begun, we find out ourselves."""
GRACE_SECONDS = 10.0
"""For a job that runs when the pipeline is told to stop."""


def bigquery_module() -> Any:
    try:
        from google.cloud import bigquery
    except ImportError as error:
        raise MissingExtraError(
            "the package google-cloud-bigquery is not installed", hint="pip install 'walrelay[bigquery]'"
        ) from error
    return bigquery


@dataclass(frozen=True)
class Access:
    """How to reach BigQuery. `credentials` are Google's own object; None takes the environment's, or a file's."""

    project: str
    location: str | None = None
    credentials: Any = None
    credentials_file: Path | None = None
    endpoint: str | None = None
    """Another address than Google's, without credentials: an emulator."""


class BigQueryClient:
    """Used by several threads."""

    def __init__(self, access: Access, stopping: Event) -> None:
        self._access = access
        self._stopping = stopping

    @property
    def location(self) -> str | None:
        """Where jobs are to run, if somebody has said so."""
        return self._access.location

    def stay_in(self, location: str | None) -> None:
        """Run jobs where the dataset is."""
        if location:
            self.google._location = location  # Google's client has no other way once it is made

    def storage(self) -> Any:
        """A client by which many rows come quickly, where its package is there; an emulator does not serve it."""
        if self._access.endpoint is not None or find_spec("google.cloud.bigquery_storage_v1") is None:
            return None
        from google.cloud.bigquery_storage_v1 import BigQueryReadClient  # type: ignore[import-untyped]

        return BigQueryReadClient(credentials=self._credentials())

    @cached_property
    def google(self) -> Client:
        bigquery, access = bigquery_module(), self._access
        from google.api_core.client_options import ClientOptions

        with bigquery_failures("reading the credentials"):
            found: Client = bigquery.Client(
                project=access.project,
                location=access.location,
                credentials=self._credentials(),
                client_options=ClientOptions(api_endpoint=access.endpoint) if access.endpoint else None,
            )
        return found

    def _credentials(self) -> Any:
        access = self._access
        if access.credentials is not None:
            return access.credentials
        if access.endpoint is not None:
            from google.auth.credentials import AnonymousCredentials

            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        if access.credentials_file is None:
            return None
        from google.oauth2.service_account import Credentials

        try:
            return Credentials.from_service_account_file(str(access.credentials_file))  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{access.credentials_file} is no file of a service account's credentials",
                hint="Give the JSON file that Google made with the account's key.",
            ) from error

    @property
    def patience(self) -> dict[str, Any]:
        """For every call that takes these."""
        from google.cloud.bigquery.retry import DEFAULT_RETRY

        return {"retry": DEFAULT_RETRY.with_timeout(PATIENCE_SECONDS), "timeout": REQUEST_SECONDS}

    def close(self) -> None:
        made = self.__dict__.pop("google", None)
        if made is not None:
            made.close()

    # ------------------------------------------------------------------------------------------------------------ jobs

    def query(self, sql: str, job: str, doing: str, values: Mapping[str, Any] | None = None) -> RowIterator:
        """Run a statement, or a script, as the job of this name; what it gives."""
        bigquery = bigquery_module()
        kinds = {int: "INT64", str: "STRING", datetime: "TIMESTAMP"}
        config = bigquery.QueryJobConfig(
            query_parameters=[
                bigquery.ScalarQueryParameter(name, kinds.get(type(value), "STRING"), value)
                for name, value in (values or {}).items()
            ],
            use_query_cache=False,
        )

        def begin(id_: str) -> Any:
            return self.google.query(
                sql, job_id=id_, job_config=config, retry=_ONCE, job_retry=None, timeout=REQUEST_SECONDS
            )

        done = self._done(begin, job, doing)
        with bigquery_failures(doing):
            rows: RowIterator = done.result(job_retry=None, **self.patience)
        return rows

    def load(self, place: str, schema: Sequence[SchemaField], file: Path, job: str, doing: str) -> None:
        """Append a Parquet file's rows."""
        config = self._load_config(schema)

        def begin(id_: str) -> Any:
            with file.open("rb") as opened:
                return self.google.load_table_from_file(
                    opened,
                    place,
                    job_id=id_,
                    job_config=config,
                    size=file.stat().st_size,
                    num_retries=0,
                    timeout=UPLOAD_SECONDS,
                )

        self._done(begin, job, doing)

    def load_from(self, place: str, schema: Sequence[SchemaField], urls: Sequence[str], job: str, doing: str) -> None:
        """The same for objects in Google's storage, all in one job."""
        config = self._load_config(schema)

        def begin(id_: str) -> Any:
            return self.google.load_table_from_uri(
                list(urls), place, job_id=id_, job_config=config, retry=_ONCE, timeout=REQUEST_SECONDS
            )

        self._done(begin, job, doing)

    def _load_config(self, schema: Sequence[SchemaField]) -> Any:
        bigquery = bigquery_module()
        config = bigquery.LoadJobConfig(
            source_format=bigquery.SourceFormat.PARQUET,
            write_disposition=bigquery.WriteDisposition.WRITE_APPEND,
            create_disposition=bigquery.CreateDisposition.CREATE_NEVER,
            schema=list(schema),
            decimal_target_types=["NUMERIC", "BIGNUMERIC"],
        )
        # Names of attributes as they are; without it all but letters, digits and underscores would be replaced.
        config.column_name_character_map = "V2"
        config.parquet_options = bigquery.ParquetOptions()
        config.parquet_options.enable_list_inference = True
        return config

    def _done(self, begin: Callable[[str], Any], name: str, doing: str) -> Any:
        """The job, done. A failure that may pass is followed by a job with the next id; one whose answer was lost is
        looked for under its own."""
        waits = delays(FIRST_DELAY)
        for attempt in range(TRIES):
            job = self._waited(self._begun(begin, f"{name}_{attempt}", doing), doing)
            if job.error_result is None:
                return job
            error = in_our_words(_failure(job), doing)
            if not error.retryable or attempt == TRIES - 1:
                raise error
            if self._stopping.wait(next(waits).total_seconds()):
                raise StoppedError(f"the pipeline was stopped while {doing}") from error
        raise AssertionError("the last attempt has returned or raised")

    def _begun(self, begin: Callable[[str], Any], id_: str, doing: str) -> Any:
        from google.api_core.exceptions import Conflict, NotFound

        waits, deadline = delays(FIRST_DELAY), time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with bigquery_failures(doing):
                    try:
                        return begin(id_)
                    except Conflict:
                        # It is there: what became of it, its final state tells.
                        return self.google.get_job(id_, **self.patience)
            except (DestinationUnreachableError, DestinationThrottledError) as error:
                with suppress(NotFound, WalrelayError), bigquery_failures(doing):
                    return self.google.get_job(id_, **self.patience)
                if time.monotonic() > deadline:
                    raise
                if self._stopping.wait(next(waits).total_seconds()):
                    raise StoppedError(f"the pipeline was stopped while {doing}") from error

    def _waited(self, job: Any, doing: str) -> Any:
        pause, most = _POLL
        stop_at: float | None = None
        while job.state != "DONE":
            time.sleep(pause)
            pause = min(pause * 1.5, most)
            with bigquery_failures(doing):
                job.reload(**self.patience)
            if self._stopping.is_set():
                stop_at = stop_at or time.monotonic() + GRACE_SECONDS
                if time.monotonic() > stop_at and job.state != "DONE":
                    with suppress(Exception):  # it may have ended, or go on: what it does is guarded
                        job.cancel(timeout=REQUEST_SECONDS)
                    raise StoppedError(f"the pipeline was stopped while {doing}")
        return job

    # --------------------------------------------------------------------------------------------------------- catalog

    def table(self, place: str) -> Any | None:
        """None when there is no such table."""
        from google.api_core.exceptions import NotFound

        with bigquery_failures("looking for a table"):
            try:
                return self.google.get_table(place, **self.patience)
            except NotFound:
                return None

    def tables(self, dataset: str) -> Iterator[str]:
        with bigquery_failures("listing tables"):
            yield from (one.table_id for one in self.google.list_tables(dataset, **self.patience))

    def make(self, place: str, schema: Sequence[SchemaField], lives: timedelta | None = None) -> None:
        bigquery = bigquery_module()
        made = bigquery.Table(place, schema=list(schema))
        made.expires = None if lives is None else datetime.now(UTC) + lives
        with bigquery_failures("making a table"):
            self.google.create_table(made, exists_ok=True, **self.patience)

    def drop(self, place: str) -> None:
        with bigquery_failures("dropping a table"):
            self.google.delete_table(place, not_found_ok=True, **self.patience)


def _failure(job: Any) -> Failed:
    said = job.error_result
    return Failed(str(said.get("reason", "")), str(said.get("message", "")))
