"""The listener of the API: uvicorn on a socket of ours, so that a taken port is one line and not a traceback."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from kapsa.adapters.variables import SettingsError
from kapsa.fleet.server.served_certificate import ServedCertificate
from kapsa.fleet.settings import PREFIX, FleetSettings

__all__ = ["HttpServer"]

_GRACE = 10


class _Listener(uvicorn.Server):
    """A server that leaves the signals of the process to the lifecycle."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """An ASGI application on an address."""

    def __init__(self, settings: FleetSettings, application: Any) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None
        config = _config(settings, application)
        self._listener = _Listener(config)
        self.certificate = _certificate(settings, config)
        """The certificate, if the API is served over TLS."""
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the API."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._settings.tls_certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        """Listen. Raises SettingsError if the address is taken or not of this machine."""
        self._socket = _bind(self._settings)
        self._task = asyncio.create_task(self._listener.serve(sockets=[self._socket]), name="http")
        while not self._listener.started:
            if self._task.done():
                await self._task
                raise SettingsError("the API did not start")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Refuse new requests, and finish those under way within ten seconds. A second call changes nothing."""
        self._listener.should_exit = True
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()


def _config(settings: FleetSettings, application: Any) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    except OSError as error:
        raise SettingsError(f"{PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY cannot be used: {error}") from None
    return config


def _certificate(settings: FleetSettings, config: uvicorn.Config) -> ServedCertificate | None:
    if config.ssl is None or settings.tls_certificate is None or settings.tls_key is None:
        return None
    return ServedCertificate(config.ssl, settings.tls_certificate, settings.tls_key)


def _bind(settings: FleetSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.listen_address else socket.AF_INET
    try:
        return socket.create_server(
            (settings.listen_address, settings.listen_port), family=family, backlog=512
        )
    except OSError as error:
        where = f"{settings.listen_address}:{settings.listen_port}"
        raise SettingsError(
            f"the API cannot listen on {where}: {error.strerror}. Choose another {PREFIX}LISTEN_PORT"
        ) from None
