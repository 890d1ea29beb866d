"""What BigQuery says when something goes wrong, in our words: a table of its error classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from walrelay.errors import (
    DestinationError,
    DestinationLoginError,
    DestinationPlaceMissingError,
    DestinationRightsError,
    DestinationThrottledError,
    DestinationUnreachableError,
    WalrelayError,
    from_text,
)

REASONS: Mapping[str, type[DestinationError]] = {
    "accessDenied": DestinationRightsError,
    "authError": DestinationLoginError,
    "backendError": DestinationUnreachableError,
    "badGateway": DestinationUnreachableError,
    "billingNotEnabled": DestinationRightsError,
    "billingTierLimitExceeded": DestinationRightsError,
    "internalError": DestinationUnreachableError,
    "jobBackendError": DestinationUnreachableError,
    "jobInternalError": DestinationUnreachableError,
    "jobRateLimitExceeded": DestinationThrottledError,
    "notFound": DestinationPlaceMissingError,
    "quotaExceeded": DestinationThrottledError,
    "rateLimitExceeded": DestinationThrottledError,
    "resourcesExceeded": DestinationError,
    "stopped": DestinationUnreachableError,
    "tableUnavailable": DestinationUnreachableError,
    "timeout": DestinationUnreachableError,
}
"""By the reason that an answer or a job gives."""
CODES: Mapping[int, type[DestinationError]] = {
    401: DestinationLoginError,
    403: DestinationRightsError,
    404: DestinationPlaceMissingError,
    408: DestinationUnreachableError,
    429: DestinationThrottledError,
    500: DestinationUnreachableError,
    502: DestinationUnreachableError,
    503: DestinationUnreachableError,
    504: DestinationUnreachableError,
}
"""By the status of an answer that gives no reason."""
_CONFLICTS = ("due to concurrent update", "concurrent transaction", "Transaction conflict", "Could not serialize")
"""Another transaction has changed the same table: this one may be tried again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What a job or an answer says of its failure."""

    reason: str
    message: str
    code: int = 0

    @property
    def kind(self) -> type[DestinationError]:
        if any(words in self.message for words in _CONFLICTS):
            return DestinationThrottledError
        return REASONS.get(self.reason) or CODES.get(self.code) or DestinationError


def in_our_words(failed: Failed, doing: str) -> WalrelayError:
    """BigQuery's text may quote a value, and is not shown; one of our own is taken out of it."""
    own = from_text(failed.message)
    if own is not None:
        return own
    said = failed.reason or (str(failed.code) if failed.code else "no reason given")
    return failed.kind(f"BigQuery failed while {doing} ({said})")


@contextmanager
def bigquery_failures(doing: str) -> Iterator[None]:
    """Exceptions of Google's clients inside become ours."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from requests.exceptions import RequestException

    try:
        yield
    except GoogleAPICallError as error:
        raise in_our_words(failed_of(error), doing) from error
    except (RetryError, TransportError, RequestException, ConnectionError, TimeoutError) as error:
        raise DestinationUnreachableError(f"BigQuery does not answer, while {doing}") from error
    except GoogleAuthError as error:
        raise DestinationLoginError(
            f"Google refused the credentials, while {doing} ({type(error).__name__})"
        ) from error


def failed_of(error: Exception) -> Failed:
    """Of an exception of Google's clients."""
    errors = getattr(error, "errors", None) or [{}]
    first = errors[0] if isinstance(errors[0], Mapping) else {}
    return Failed(str(first.get("reason", "")), str(getattr(error, "message", "")), int(getattr(error, "code", 0) or 0))
