"""The embedded engine without controllers, behind the certificates that envtest issues."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from kapsa.devcluster.embedded.backend import Admission
from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.envtest.flags import FlagError, ServerFlags, parse_flags
from kapsa.devcluster.wire.listener import HttpFront

__all__ = ["run"]


def run(arguments: Sequence[str], listener: socket.socket | None = None) -> int:
    """Serve until SIGTERM. Return the exit code."""
    try:
        flags = parse_flags(arguments)
        context = tls_context(flags)
        disable_plugins(server := new_server(flags), flags.disabled_plugins)
    except (FlagError, OSError, ssl.SSLError) as error:
        sys.stderr.write(f"kube-apiserver: {error}\n")
        return 1
    for note in flags.notes:
        sys.stderr.write(f"kube-apiserver: {note}\n")
    asyncio.run(_serve(server, flags, context, listener))
    return 0


async def _serve(
    server: Server, flags: ServerFlags, context: ssl.SSLContext, listener: socket.socket | None
) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    front = HttpFront(server, host=flags.host, port=flags.port, tls=context, listener=listener)
    await front.start()
    try:
        server.advertise(*front.address)
        await stopped.wait()
    finally:
        await front.close()


def new_server(flags: ServerFlags) -> Server:
    """Return the engine with the authorization of the flags: RBAC, or everything is allowed."""
    return Server(policy=(lambda _: True) if flags.allows_all else None)


def tls_context(flags: ServerFlags) -> ssl.SSLContext:
    """Return a context with the server's certificate, which accepts the clients of the flags' authority."""
    for file in filter(None, (flags.certificate, flags.key, flags.client_authority)):
        if not Path(file).is_file():
            raise FlagError(f"{file} does not exist; set --cert-dir, --tls-cert-file and --client-ca-file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(flags.certificate, flags.key)
    if flags.client_authority:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(flags.client_authority)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def disable_plugins(server: Server, names: frozenset[str]) -> None:
    """Remove admission plugins from the engine. Raises FlagError for one that it does not have or cannot miss."""
    chain = server.backend.admission
    for name in names:
        plugin = _plugin(chain, name)
        if plugin is None:
            raise FlagError(f"--disable-admission-plugins: {name} is not a plugin that can be disabled here")
        chain.remove(plugin)


def _plugin(chain: Sequence[Admission], name: str) -> Admission | None:
    """Return the plugin with a name of kube-apiserver; the engine's classes have it too, some in the plural."""
    return next((each for each in chain if type(each).__name__ in (name, f"{name}s", f"{name}r")), None)
