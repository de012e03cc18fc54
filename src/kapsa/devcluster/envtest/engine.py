"""The embedded engine without controllers, for one kube-apiserver after the other on the state of one etcd."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kapsa.devcluster.embedded.admission.plugin_names import (
    PluginNameError,
    check_enabled_plugins,
    without_plugins,
)
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.embedded.storage.store import ObjectStore
from kapsa.devcluster.envtest.flags import FlagError, ServerFlags, parse_flags
from kapsa.devcluster.wire.listener import HttpFront

__all__ = ["run"]

_LONGEST_REQUEST = 1024 * 1024


class _Attachment(msgspec.Struct, frozen=True):
    """A kube-apiserver that is to be served: where it was started, its arguments and its port."""

    directory: Path
    arguments: list[str]
    listener: socket.socket


def run(control: socket.socket) -> None:
    """Serve the API servers that connect to a socket. Never returns: a signal ends the process."""
    asyncio.run(_Engine().serve(control))


class _Engine:
    """The state of an etcd, and the API server that serves it now."""

    def __init__(self) -> None:
        self._store = ObjectStore()
        self._attached = False

    async def serve(self, control: socket.socket) -> None:
        """Serve each connection, until the task is cancelled."""
        control.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                connection, _ = await loop.sock_accept(control)
                tasks.create_task(self._attach(connection))

    async def _attach(self, connection: socket.socket) -> None:
        """Serve a kube-apiserver until it closes its end. What it is sent, it writes to its standard error."""
        with connection:
            connection.setblocking(False)
            try:
                attachment = await _receive(connection)
            except (OSError, ValueError):
                return  # not a kube-apiserver, or one that has ended already
            with attachment.listener:
                try:
                    await self._serve(attachment, connection)
                except (FlagError, OSError, ssl.SSLError) as error:
                    await _report(connection, [str(error)])

    async def _serve(self, attachment: _Attachment, connection: socket.socket) -> None:
        flags = parse_flags(attachment.arguments)
        if self._attached:
            raise FlagError("another kube-apiserver uses this etcd; the drop-in serves one at a time")
        context = tls_context(flags, attachment.directory)
        server = new_server(flags, self._store)
        front = HttpFront(server, host=flags.host, tls=context, listener=attachment.listener)
        self._attached = True
        try:
            await front.start()
            server.advertise(*front.address)
            await _report(connection, flags.notes)
            await asyncio.get_running_loop().sock_recv(connection, 1)
        finally:
            await front.close()
            self._store.listeners.clear()
            self._attached = False


async def _receive(connection: socket.socket) -> _Attachment:
    """Read the request of a kube-apiserver. Raises OSError or ValueError when there is none."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection, readable.set_result, None)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
    if len(head) != 4 or len(descriptors) != 1:
        raise ValueError("not the request of a kube-apiserver")
    listener = socket.socket(fileno=descriptors[0])
    length, request = int.from_bytes(head, "big"), b""
    if length > _LONGEST_REQUEST:
        raise ValueError("the request is too long")
    while len(request) < length:
        data = await loop.sock_recv(connection, length - len(request))
        if not data:
            raise ValueError("the request is incomplete")
        request += data
    directory, *arguments = request.decode(errors="surrogateescape").split("\0")
    return _Attachment(Path(directory), arguments, listener)


async def _report(connection: socket.socket, lines: Sequence[str]) -> None:
    """Send lines to a kube-apiserver, which may have ended in the meantime."""
    text = "".join(f"kube-apiserver: {line}\n" for line in lines)
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(connection, text.encode())


def new_server(flags: ServerFlags, store: ObjectStore) -> Server:
    """Return the engine with the authorization and the admission plugins of the flags.

    Raises FlagError for a plugin that it does not have or cannot miss.
    """
    server = Server(Backend(store=store), policy=(lambda _: True) if flags.allows_all else None)
    try:
        server.backend.admission[:] = without_plugins(server.backend.admission, flags.disabled_plugins)
    except PluginNameError as error:
        raise FlagError(f"--disable-admission-plugins: {error}") from None
    try:
        check_enabled_plugins(flags.enabled_plugins)
    except PluginNameError as error:
        raise FlagError(f"--enable-admission-plugins: {error}") from None
    return server


def tls_context(flags: ServerFlags, directory: Path) -> ssl.SSLContext:
    """Return a context with the server's certificate, which accepts the clients of the flags' authority.

    Relative paths start at a directory.
    """
    files = {
        each: directory / each for each in (flags.certificate, flags.key, flags.client_authority) if each
    }
    for name, file in files.items():
        if not file.is_file():
            raise FlagError(f"{name} does not exist; set --cert-dir, --tls-cert-file and --client-ca-file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[flags.certificate], files[flags.key])
    if flags.client_authority:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(files[flags.client_authority])
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
