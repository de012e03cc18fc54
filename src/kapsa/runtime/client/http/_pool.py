"""The connections to one server: so many for requests, used again and again, and one for each stream."""

from __future__ import annotations

import asyncio
import ssl

from kapsa.runtime.client.http._connection import HttpConnection
from kapsa.runtime.client.http._connector import Connector

__all__ = ["ConnectionPool", "PoolExhaustedError"]

_KEEP_ALIVE = 30.0
"""Seconds. The API server closes idle connections after 90 s; closing ours earlier means never writing a request into
one that is just being closed."""


_CLOSED = "this client was closed"


class PoolExhaustedError(Exception):
    """All connections stayed in use until it was too late."""


class ConnectionPool:
    """Lends connections. One is shared by all requests that travel in the same TLS context, one at a time."""

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
        """A connection for one exchange; `give_back` it in any case, also if the exchange has not come to its end."""
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
        """Leave it to the next; one that something may still come from is closed."""
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
        """A new connection, beside the limit."""
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
        if self._closed:  # in the very turn in which it came about: `close` did not find it
            connection.abort()
            raise ConnectionAbortedError(_CLOSED)
        if not connection.reusable:
            raise ConnectionResetError("the server closed it at once")
        return connection

    async def close(self) -> None:
        """Close all connections; returns once their sockets are. Whoever waits for one, or for an answer, is told."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        for attempt in self._connecting:
            if not attempt.expired():
                attempt.reschedule(asyncio.get_running_loop().time())
        ending = list(self._open)
        for connection in ending:
            connection.fail(ConnectionAbortedError(_CLOSED))
        await asyncio.gather(*(connection.ended for connection in ending))

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
        waiting = self._idle.get(tls)
        while waiting:
            connection = waiting.pop()
            if connection.reusable:
                return connection
        return None

    def _sweep(self) -> None:
        """Close what nobody has needed for a while."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEEP_ALIVE
        for tls, waiting in list(self._idle.items()):
            for connection in waiting:
                if connection.idle_since <= oldest:
                    connection.close()
            self._idle[tls] = [each for each in waiting if each.reusable]
            if not self._idle[tls]:
                del self._idle[tls]
        next_one = min((each.idle_since for kept in self._idle.values() for each in kept), default=None)
        self._sweeping = None if next_one is None else loop.call_at(next_one + _KEEP_ALIVE, self._sweep)
