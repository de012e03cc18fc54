"""The client for webhooks: over HTTPS, or through a handler in this process."""

from __future__ import annotations

import asyncio
import base64
import json
import posixpath
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["BundleError", "CallError", "WebhookClient", "WebhookHandler"]

WebhookHandler = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Takes the path (with its query) and the body of a POST; returns the status and body of the response."""


class CallError(Exception):
    """A failed call of a webhook, with the message of the real server."""


class BundleError(CallError):
    """A `caBundle` without a certificate that can be read; no call was made."""


class WebhookClient:
    """A client that calls webhooks at the address of their `clientConfig`."""

    def __init__(self) -> None:
        self._routes: dict[str, WebhookHandler | str] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def route(self, target: str, to: WebhookHandler | str) -> None:
        """Redirect calls for `target`, a Service (`namespace/name`) or the start of a URL (`https://host:port`).

        They go to a handler in this process, or to the base URL where the webhook listens: a devcluster has no network
        behind its Services, and on virtual time no sockets.
        """
        self._routes[target] = to

    async def post(self, config: dict[str, Any], body: bytes, *, timeout: float) -> dict[str, Any]:
        """Call a webhook and decode its response.

        Raises BundleError for a bad certificate bundle, CallError when the call fails, times out or returns garbage.
        """
        base, path, key = _address(config)
        path = f"{path}?timeout={int(timeout)}s"
        shown = f'Post "{base}{path}"'
        to = self._routes.get(key, base)
        try:
            async with asyncio.timeout(timeout):
                if isinstance(to, str):
                    status, answer = await self._over_https(to + path, body, config.get("caBundle") or "")
                else:
                    status, answer = await to(path, body)
        except TimeoutError:
            raise CallError(f"{shown}: context deadline exceeded") from None
        except OSError as error:
            raise CallError(f"{shown}: {_describe(error)}") from error
        return _decode(status, answer)

    async def _over_https(self, url: str, body: bytes, bundle: str) -> tuple[int, bytes]:
        import aiohttp

        headers = {"content-type": "application/json", "accept": "application/json, */*"}
        connector = aiohttp.TCPConnector(ssl=self._context(bundle), force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await response.read()

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            context = self._contexts[bundle] = _trusting(bundle) if bundle else ssl.create_default_context()
        return context


def _trusting(bundle: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a bundle and no others.

    As in Go, any of them ends the chain: envtest registers the webhook's own certificate, without its issuer. And as
    in Go, a certificate needs no key identifiers, which OpenSSL's strict mode demands.
    """
    try:
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode("latin-1"))
    except (ssl.SSLError, ValueError):
        raise BundleError("unable to load root certificates: unable to parse bytes as PEM block") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _address(config: dict[str, Any]) -> tuple[str, str, str]:
    """Return the base URL, the path, and the key of a route."""
    service = config.get("service")
    if service is not None:
        host = f"{service['name']}.{service['namespace']}.svc"
        path = _cleaned(service.get("path") or "")
        return f"https://{host}:{service.get('port', 443)}", path, f"{service['namespace']}/{service['name']}"
    scheme, _, rest = config["url"].partition("://")
    host, _, path = rest.partition("/")
    base = f"{scheme}://{host}"
    return base, _cleaned(path), base


def _cleaned(path: str) -> str:
    """Return a path as Go's client sends it, without empty and dot segments. envtest registers `//validate`."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _describe(error: OSError) -> str:
    """Return the message of a connection error, for common ones in Go's words."""
    if isinstance(error, ssl.SSLCertVerificationError) or isinstance(
        error.__cause__, ssl.SSLCertVerificationError
    ):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    host, port = getattr(error, "host", None), getattr(error, "port", None)
    where = f"dial tcp {host}:{port}: " if host else ""
    refused = isinstance(error, ConnectionRefusedError) or isinstance(error.__cause__, ConnectionRefusedError)
    if refused:
        return f"{where}connect: connection refused"
    if host and str(host).endswith(".svc"):
        return f"dial tcp: lookup {host}: no such host"
    return f"{where}{error}"


def _decode(status: int, answer: bytes) -> dict[str, Any]:
    if status == 404:
        raise CallError("the server could not find the requested resource")
    if status >= 400:
        text = answer.decode(errors="replace").strip()[:200]
        raise CallError(
            f"an error on the server ({json.dumps(text)}) has prevented the request from succeeding"
        )
    try:
        document = json.loads(answer)
    except ValueError as error:
        raise CallError(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(document, dict):
        raise CallError("couldn't get version/kind; the response is not an object")
    return document
