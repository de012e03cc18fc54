"""The connections to one server: a limited number for requests, which are reused, and one for each stream."""

from __future__ import annotations

import asyncio
import ssl

from kapsa.runtime.client.http._connection import HttpConnection
from kapsa.runtime.client.http._connector import Connector

__all__ = ["ConnectionPool", "PoolExhaustedError"]

_KEEP_ALIVE = 30.0
"""Seconds that an idle connection is kept. The API server closes idle connections after 90 s; closing them
earlier avoids writing a request to a connection that is just being closed."""


_CLOSED = "the client was closed"


class PoolExhaustedError(Exception):
    """All connections remained in use until the deadline."""


class ConnectionPool:
    """A pool that lends connections to requests, one request at a time.

    Requests with the same TLS context share connections.
    """

    def __init__(self, connector: Connector, *, limit: int, connect_timeout: float) -> None:
        self._connector = connector
        self._connect_timeout = connect_timeout
        self._slots = asyncio.Semaphore(limit)
        self._idle: dict[ssl.SSLContext | bool, list[HttpConnection]] = {}
        self._open: set[HttpConnection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def borrow(self, tls: ssl.SSLContext | bool, deadline: float) -> HttpConnection:
        """Return a connection for one request; `give_back` must follow, even if the request fails."""
        if self._slots.locked():
            await self._wait(deadline)
        else:
            await self._slots.acquire()
        try:
            return self._take(tls) or await self.connect(tls, deadline)
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: HttpConnection, tls: ssl.SSLContext | bool) -> None:
        """Take a connection back for the next request; close it if its response is incomplete."""
        self._slots.release()
        if self._closed or not connection.reusable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(tls, []).append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(_KEEP_ALIVE, self._sweep)

    async def connect(self, tls: ssl.SSLContext | bool, deadline: float | None = None) -> HttpConnection:
        """Open a connection that does not count towards the limit."""
        limit = self._connect_timeout
        if deadline is not None:
            limit = min(limit, deadline - asyncio.get_running_loop().time())
        self._check_open()
        try:
            async with asyncio.timeout(limit) as attempt:
                self._connecting.add(attempt)
                try:
                    connection = await self._connector.connect(tls)
                finally:
                    self._connecting.discard(attempt)
        except TimeoutError:
            self._check_open()
            raise
        self._open.add(connection)
        connection.ended.add_done_callback(lambda _: self._open.discard(connection))
        if self._closed:  # `close` ran in the same turn of the event loop, and missed this connection
            connection.abort()
            raise ConnectionAbortedError(_CLOSED)
        if not connection.reusable:
            raise ConnectionResetError("the server closed the connection at once")
        return connection

    def close_idle(self) -> None:
        """Close the connections that no request uses. The next requests open new ones."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def close(self) -> None:
        """Close all connections and wait for their sockets. Requests that are under way fail."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        for attempt in self._connecting:
            if not attempt.expired():
                attempt.reschedule(asyncio.get_running_loop().time())
        closing = list(self._open)
        for connection in closing:
            connection.fail(ConnectionAbortedError(_CLOSED))
        await asyncio.gather(*(connection.ended for connection in closing))

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(_CLOSED)

    async def _wait(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise PoolExhaustedError from None

    def _take(self, tls: ssl.SSLContext | bool) -> HttpConnection | None:
        idle = self._idle.get(tls)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _sweep(self) -> None:
        """Close connections that have been idle for too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEEP_ALIVE
        for tls, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since <= oldest:
                    connection.close()
            self._idle[tls] = [each for each in idle if each.reusable]
            if not self._idle[tls]:
                del self._idle[tls]
        oldest_left = min((each.idle_since for kept in self._idle.values() for each in kept), default=None)
        self._sweeping = None if oldest_left is None else loop.call_at(oldest_left + _KEEP_ALIVE, self._sweep)
