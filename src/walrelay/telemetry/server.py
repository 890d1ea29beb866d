"""The HTTP endpoint of a running pipeline: /metrics, /health and /ready, each answered from the last look."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from walrelay.telemetry.exposition import CONTENT_TYPE
from walrelay.telemetry.failures import ListenAddressError
from walrelay.telemetry.health import Verdict, health, is_stale, readiness
from walrelay.telemetry.look import Look
from walrelay.telemetry.metrics import metrics_text

AT_A_TIME = 16
"""Requests; more are hung up on, so that nobody can fill this process with them."""
PATIENCE_SECONDS = 5.0
"""For a client that says nothing."""
_PATHS = {"/metrics": "metrics for Prometheus", "/health": "whether it is alive", "/ready": "whether it is current"}

Latest = Callable[[], Look | None]


@contextmanager
def serving(host: str, port: int, latest: Latest) -> Iterator[tuple[str, int]]:
    """Answer requests meanwhile; gives the address that is really listened on. Raises when it cannot be."""
    server = _open(host, port, latest)
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="walrelay-metrics", daemon=True)
    thread.start()
    try:
        yield str(server.server_address[0]), int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _open(host: str, port: int, latest: Latest) -> _Server:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server(family, address, latest)
    except OSError as error:
        raise ListenAddressError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: int, address: Any, latest: Latest) -> None:
        self.address_family = family
        self.latest = latest
        self._places = threading.BoundedSemaphore(AT_A_TIME)
        super().__init__(address, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's business."""

    def server_bind(self) -> None:
        # Without the look-up of our own name, which HTTPServer does and which may take seconds.
        socket_server_bind(self)


def socket_server_bind(server: ThreadingHTTPServer) -> None:
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.socket.bind(server.server_address)
    server.server_address = server.socket.getsockname()
    server.server_name, server.server_port = str(server.server_address[0]), int(server.server_address[1])


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout: ClassVar[float] = PATIENCE_SECONDS
    server_version = "walrelay"
    sys_version = ""

    def do_GET(self) -> None:
        look = self.server.latest()
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, metrics_text(_believable(look)) if look is not None else "", CONTENT_TYPE)
            case "/health":
                self._say(health(look))
            case "/ready":
                self._say(readiness(look))
            case "/":
                self._answer(200, "".join(f"{path}  {what}\n" for path, what in _PATHS.items()), "text/plain")
            case _:
                self._answer(404, "there is /metrics, /health and /ready\n", "text/plain")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _say(self, verdict: Verdict) -> None:
        self._answer(200 if verdict.ok else 503, json.dumps(verdict.body, default=str) + "\n", "application/json")

    def _answer(self, code: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no event."""


def _believable(look: Look) -> Look:
    """Without what may have become wrong since."""
    return replace(look, status=None, stock=None, memory={}) if is_stale(look) else look
