"""A TCP proxy on loopback that cuts, holds back and refuses connections when told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_HOST = "127.0.0.1"
_CHUNK = 1 << 16
_LINGER_SECONDS = 2
_T = TypeVar("_T")


class FaultProxy:
    """`with FaultProxy("127.0.0.1", server.port) as proxy: connect(proxy.url(server.url)); proxy.drop()`.

    The port stays the same. Every method has taken effect when it returns, and may be called from any thread.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        # Set: bytes may pass in this direction.
        self._to_client = asyncio.Event()
        self._to_server = asyncio.Event()
        self._left: int | None = None
        self._accepted = 0
        self._passed = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._call(lambda: len(self._links))

    @property
    def accepted(self) -> int:
        """How many there have been."""
        return self._accepted

    @property
    def bytes_to_client(self) -> int:
        """How many bytes have gone from server to client, over all connections."""
        return self._passed

    def url(self, for_url: str) -> str:
        """The URL with host and port of the proxy instead of its own."""
        parts = urlsplit(for_url)
        user, at, _ = parts.netloc.rpartition("@")
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "hostaddr", "port")]
        return urlunsplit(parts._replace(netloc=f"{user}{at}{_HOST}:{self._port}", query=urlencode(query)))

    def drop(self) -> None:
        """Cut all connections now; what was under way is lost."""
        self._call(self._drop)

    def pause(self, *, to_client: bool = True, to_server: bool = True) -> None:
        """Hold back all bytes in these directions; connections stay, and are still accepted."""
        chosen = (to_client, self._to_client), (to_server, self._to_server)
        for gate in (gate for held, gate in chosen if held):
            self._call(gate.clear)

    def stall(self) -> None:
        """Hold back all bytes of the connections that are open now, as a firewall does that has forgotten them; later
        ones pass."""
        self._call(self._stall)

    def resume(self) -> None:
        """Let go of what was held back, and of all that follows."""
        for gate in (self._to_client, self._to_server):
            self._call(gate.set)
        self._call(self._let_go)

    def truncate_after(self, count: int) -> None:
        """Pass `count` more bytes from server to client, then cut the connection that has the next one.

        The client receives exactly these bytes and then the end, wherever in a message that falls. Connections that
        are made afterwards, and others that are open, go on; a second call replaces the first.
        """
        if count < 0:
            raise ValueError(f"cannot pass {count} bytes")
        self._call(lambda: setattr(self, "_left", count))

    def refuse(self, refused: bool) -> None:
        """Accept no new connections, as if no server ran; or accept them again. Open ones go on."""
        asyncio.run_coroutine_threadsafe(self._close_port() if refused else self._open_port(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self.resume()
        self.refuse(False)
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse(True)
        self.drop()
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # All that follows runs in the loop's thread.

    def _call(self, action: Callable[[], _T]) -> _T:
        async def act() -> _T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def _drop(self) -> None:
        for link in self._links:
            link.cut()
        self._links.clear()

    def _stall(self) -> None:
        for link in self._links:
            link.passing.clear()

    def _let_go(self) -> None:
        for link in self._links:
            link.passing.set()

    async def _open_port(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, _HOST, self._port, limit=_CHUNK)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _close_port(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._accepted += 1
        link = _Link(to_client)
        self._links.add(link)
        try:
            from_server, to_server = await asyncio.open_connection(*self._target, limit=_CHUNK)
            link.join(to_server)
            link.forth = asyncio.ensure_future(self._pump_forth(link, from_client, to_server))
            link.back = asyncio.ensure_future(self._pump_back(link, from_server, to_client))
            await link.ended()
        except (OSError, asyncio.CancelledError):
            pass  # no server: the client sees it by the end of its connection; or the proxy closes
        finally:
            link.close()
            self._links.discard(link)

    async def _pump_forth(self, link: _Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until the client ends; what it still sends when the server is gone is dropped."""
        with suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await self._to_server.wait()
                await link.passing.wait()
                with suppress(OSError):
                    if not sink.is_closing():
                        sink.write(chunk)
                        await sink.drain()

    async def _pump_back(self, link: _Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until the server ends, or the connection is to be truncated."""
        ends = False
        with suppress(OSError):
            while not ends and (chunk := await source.read(_CHUNK)):
                await self._to_client.wait()
                await link.passing.wait()
                passed, ends = self._take(chunk)
                sink.write(passed)
                self._passed += len(passed)
                await sink.drain()

    def _take(self, chunk: bytes) -> tuple[bytes, bool]:
        """What of a chunk may pass, and whether that is the end."""
        if self._left is None:
            return chunk, False
        if len(chunk) <= self._left:
            self._left -= len(chunk)
            return chunk, False
        passed, self._left = chunk[: self._left], None
        return passed, True


class _Link:
    """A connection from a client and the one to the server that belongs to it."""

    def __init__(self, to_client: asyncio.StreamWriter) -> None:
        self.forth: asyncio.Future[None] | None = None
        self.back: asyncio.Future[None] | None = None
        self.passing = asyncio.Event()
        self.passing.set()
        self._to_client = to_client
        self._to_server: asyncio.StreamWriter | None = None
        self._is_cut = False

    def join(self, to_server: asyncio.StreamWriter) -> None:
        self._to_server = to_server
        if self._is_cut:
            self.cut()

    async def ended(self) -> None:
        """Wait for the end of either side, and tell the other one."""
        assert self.forth is not None and self.back is not None and self._to_server is not None
        await asyncio.wait((self.forth, self.back), return_when=asyncio.FIRST_COMPLETED)
        if self._is_cut or self.forth.done():
            self.back.cancel()
            return
        # The client gets all that was written, then the end. As long as it sends, closing would reset the connection,
        # and with that take away what it has not read yet.
        self._to_server.transport.abort()
        with suppress(OSError):
            self._to_client.write_eof()
        await asyncio.wait((self.forth,), timeout=_LINGER_SECONDS)

    def close(self) -> None:
        """End both sides once what was written has gone out."""
        for pump in (self.forth, self.back):
            if pump is not None:
                pump.cancel()
        for end in (self._to_client, self._to_server):
            if end is not None:
                end.close()

    def cut(self) -> None:
        """End both sides at once."""
        self._is_cut = True
        self.close()
        for end in (self._to_client, self._to_server):
            if end is not None:
                end.transport.abort()
