"""Tells somebody what has happened: a webhook, a command, or both. One thread, a bounded queue, and nobody waits."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Literal, Protocol

from walrelay.backoff import delay_of
from walrelay.config.observability import HookSettings
from walrelay.telemetry.events import Event
from walrelay.telemetry.log import log_event

FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=1), timedelta(minutes=1)
LAST_SECONDS = 5.0
"""For what is still waiting when the pipeline ends: a service manager waits ten seconds in all."""
_AGAIN: Final = frozenset({408, 425, 429})
_OUTCOMES: Final = ("delivered", "failed", "dropped")


class HookNotToldError(Exception):
    """An attempt failed; never with the URL, which may hold a token, nor with what the other side said."""

    def __init__(self, reason: str, *, passes: bool = True) -> None:
        super().__init__(reason)
        self.passes = passes
        """Whether another attempt may succeed."""


class Hook(Protocol):
    name: Literal["webhook", "command"]

    def tell(self, event: Event) -> None:
        """Once; raises HookNotToldError."""


class Webhook:
    """A POST with a JSON body."""

    name: Literal["webhook", "command"] = "webhook"

    def __init__(self, url: str, secret: str | None, timeout: float) -> None:
        self._url = url
        self._secret = secret
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects)

    def tell(self, event: Event) -> None:
        body = json.dumps(event.body(), default=str).encode()
        request = urllib.request.Request(self._url, data=body, method="POST", headers=self._headers(event, body))
        try:
            with self._opener.open(request, timeout=self._timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                passes = error.code >= 500 or error.code in _AGAIN
                raise HookNotToldError(f"answered {error.code}", passes=passes) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise HookNotToldError(f"not reached ({type(reason).__name__})") from None

    def _headers(self, event: Event, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "walrelay", "X-Walrelay-Event": event.name}
        if self._secret is not None:
            now = str(int(time.time()))
            headers |= {"X-Walrelay-Timestamp": now, "X-Walrelay-Signature": signature(self._secret, now, body)}
        return headers


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What the receiver computes to know that the body is ours and, by the timestamp, not an old one sent again."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None  # what is meant for one address is not carried to another; it comes back as an answer of 3xx


class Command:
    """A program that gets the JSON on its standard input; its exit code says whether it took it."""

    name: Literal["webhook", "command"] = "command"

    def __init__(self, arguments: tuple[str, ...], timeout: float) -> None:
        self._arguments = arguments
        self._timeout = timeout

    def tell(self, event: Event) -> None:
        try:
            child = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "WALRELAY_EVENT": event.name},
                start_new_session=True,
            )
        except OSError as error:
            raise HookNotToldError(f"not started ({error.strerror})", passes=False) from None
        try:
            child.communicate(json.dumps(event.body(), default=str).encode() + b"\n", timeout=self._timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise HookNotToldError("took too long") from None
        if child.returncode != 0:
            raise HookNotToldError(f"ended with code {child.returncode}")


def hooks_of(settings: HookSettings) -> list[Hook]:
    """Those that are wanted."""
    timeout = settings.timeout.total_seconds()
    found: list[Hook] = []
    if settings.webhook is not None:
        secret = settings.secret.get_secret_value() if settings.secret is not None else None
        found.append(Webhook(settings.webhook.get_secret_value(), secret, timeout))
    if settings.command:
        found.append(Command(settings.command, timeout))
    return found


class Messenger:
    """Brings events to the hooks, in order, each until it is taken or given up. `tell` never waits."""

    def __init__(self, settings: HookSettings, *, first_delay: timedelta = FIRST_DELAY) -> None:
        self._settings = settings
        self._first_delay = first_delay
        self._hooks = hooks_of(settings)
        self._waiting: queue.Queue[Event | None] = queue.Queue(settings.queue)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(_OUTCOMES, 0) if self._hooks else {})
        self._thread = threading.Thread(target=self._run, name="walrelay-hooks", daemon=True)

    def start(self) -> None:
        if self._hooks:
            self._thread.start()

    def tell(self, event: Event) -> None:
        """Have it told. What finds no place in the queue is dropped, and counted."""
        if not self._hooks or event.name not in self._settings.events:
            return
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._count("dropped")
            log_event(logging.ERROR, "event dropped", {"told": event.name, "waiting": self._settings.queue})

    def counts(self) -> Mapping[str, int]:
        """What became of events: delivered, failed, dropped; empty without hooks."""
        with self._lock:
            return dict(self._counts)

    def stop(self, patience: float = LAST_SECONDS) -> None:
        """What waits is tried once more each, as long as the patience lasts."""
        if not self._thread.is_alive():
            return
        self._stopping.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(patience)
        if self._thread.is_alive():
            log_event(logging.ERROR, "hooks were not told everything", {"waiting": self._waiting.qsize()})

    def _run(self) -> None:
        while not (self._stopping.is_set() and self._waiting.empty()):
            event = self._waiting.get()
            if event is not None:
                for hook in self._hooks:
                    self._bring(hook, event)

    def _bring(self, hook: Hook, event: Event) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                hook.tell(event)
            except HookNotToldError as failure:
                what = {"hook": hook.name, "told": event.name, "attempt": attempt, "reason": str(failure)}
                if not failure.passes or attempt > self._settings.retries or self._stopping.is_set():
                    self._count("failed")
                    log_event(logging.ERROR, "hook was not told", what)
                    return
                delay = delay_of(attempt, self._first_delay, LONGEST_DELAY).total_seconds()
                log_event(logging.WARNING, "hook is tried again", {**what, "after_seconds": delay})
                self._stopping.wait(delay)
                continue
            self._count("delivered")
            log_event(logging.DEBUG, "hook was told", {"hook": hook.name, "told": event.name})
            return

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1
