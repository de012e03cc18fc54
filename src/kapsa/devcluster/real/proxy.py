"""A loopback proxy in front of a real API server that injects the faults of a plan.

It simulates the faults that a plan cannot cause in a real server: after a compaction it returns 410 for older
revisions, and while reads are frozen it requests exactly the frozen revision.
"""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from kapsa.devcluster.faults.gate import FaultGate
from kapsa.devcluster.faults.plan import FaultPlan
from kapsa.devcluster.wire import routes
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.continue_tokens import expired_if_before, expired_list
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.listener import CLIENT_HEADER, HttpFront
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.routes import ResourceRoute, verb_of
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.devcluster.wire.watch_events import error_stream

__all__ = ["FaultProxy"]

_NOT_FORWARDED = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", CLIENT_HEADER}
)
_NOT_RETURNED = frozenset({"connection", "content-length", "transfer-encoding", "content-encoding", "date"})
_NEWEST = ("", "0")


class FaultProxy:
    """A proxy that forwards requests with the administrator's credentials, under a fault plan."""

    def __init__(self, url: str, kubeconfig: Mapping[str, Any], plan: FaultPlan) -> None:
        self._upstream = url
        self._tls = _client_tls(kubeconfig)
        self._gate = FaultGate(self, plan)
        self._front = HttpFront(self)
        self._session: aiohttp.ClientSession | None = None
        self._compacted = 0

    @property
    def url(self) -> str:
        return self._front.url

    async def start(self) -> None:
        """Listen on a free port; `url` is set afterwards."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        await self._front.start()

    async def close(self) -> None:
        await self._front.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def handle(self, request: Request) -> Reply:
        """Serve one request under the plan.

        Raises ConnectionDroppedError if the client gets no response.
        """
        route = routes.parse(request.path)
        if route is None:
            return await self._forward(request, request.query)
        return await self._gate.serve(request, route, verb_of(request, route), self._serve)

    # Called by the plan

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def compact(self) -> None:
        self._compacted = await self.revision()

    async def revision(self) -> int:
        reply = await self._forward(Request(method="GET", path="/api/v1/namespaces"), "limit=1")
        assert isinstance(reply.body, bytes)
        return int(msgspec.json.decode(reply.body)["metadata"]["resourceVersion"])

    # Forwarding

    async def _serve(
        self, request: Request, route: ResourceRoute, verb: str, frozen: int | None = None
    ) -> Reply:
        if self._compacted and verb in ("list", "watch"):
            expired = self._too_old(request.query, verb)
            if expired is not None:
                return expired
        if frozen is not None and verb == "list":
            return await self._forward(request, _at(request.query, frozen))
        if frozen is not None and verb == "get":
            return await self._get_at(request, route, frozen)
        return await self._forward(request, request.query)

    def _too_old(self, query: str, verb: str) -> Reply | None:
        """Return 410 for a revision that a compaction removed, None for a later one."""
        values = {name: parameters[0] for name, parameters in parse_query(query).items()}
        revision = values.get("resourceVersion", "")
        if verb == "watch":
            if revision in _NEWEST or int(revision) >= self._compacted:
                return None
            error = errors.expired(f"too old resource version: {revision} ({self._compacted})")
            headers = {"content-type": "application/json"}
            return Reply(status=200, headers=headers, body=error_stream(error))
        token = values.get("continue", "")
        if token:
            expired = expired_if_before(token, self._compacted)
            return None if expired is None else expired.reply()
        exact = values.get("resourceVersionMatch") == "Exact"
        if exact and revision not in _NEWEST and int(revision) < self._compacted:
            return expired_list().reply()
        return None

    async def _get_at(self, request: Request, route: ResourceRoute, revision: int) -> Reply:
        """Return an object at a revision. A real server can do so only in a list, here of one object."""
        collection = request.path.rpartition("/" + route.name)[0]
        query = _at(urlencode({"fieldSelector": f"metadata.name={route.name}"}), revision)
        plain = msgspec.structs.replace(request, path=collection, headers={})
        reply = await self._forward(plain, query)
        if reply.status != 200:
            return reply
        assert isinstance(reply.body, bytes)
        listed = msgspec.json.decode(reply.body)
        if not listed["items"]:
            return errors.not_found(_ResourceName(route.group, route.resource), route.name).reply()
        kind = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        body = msgspec.json.encode({**kind, **listed["items"][0]})
        return Reply(status=200, headers=reply.headers, body=body)

    async def _forward(self, request: Request, query: str) -> Reply:
        assert self._session is not None, "the proxy is not started"
        url = URL(f"{self._upstream}{request.path}" + (f"?{query}" if query else ""), encoded=True)
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        # As a file, because aiohttp warns about long bytes.
        data = io.BytesIO(request.body) if request.body else None
        try:
            response = await self._session.request(
                request.method, url, headers=headers, data=data, allow_redirects=False
            )
        except aiohttp.ClientError as error:
            raise StatusError(
                502, "BadGateway", f"the proxy cannot reach the API server at {self._upstream}: {error}"
            ) from None
        kept = {
            name.lower(): value
            for name, value in response.headers.items()
            if name.lower() not in _NOT_RETURNED
        }
        if "chunked" in response.headers.get("transfer-encoding", "") and "watch" in url.path + query:
            return Reply(status=response.status, headers=kept, body=_chunks(response))
        body = await response.read()
        return Reply(status=response.status, headers=kept, body=body)


class _ResourceName(msgspec.Struct, frozen=True):
    """A resource by its name alone: the proxy has no registry to look up its kind."""

    group: str
    resource: str
    kind: str = ""


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientPayloadError:
        # The upstream is gone; for the client, the watch just ends.
        return
    finally:
        response.close()


def _at(query: str, revision: int) -> str:
    """Return the query with its revision replaced by exactly this one."""
    replaced = ("resourceVersion", "resourceVersionMatch")
    values = [
        (name, value)
        for name, parameters in parse_query(query).items()
        for value in parameters
        if name not in replaced
    ]
    return urlencode([*values, ("resourceVersion", str(revision)), ("resourceVersionMatch", "Exact")])


def _client_tls(kubeconfig: Mapping[str, Any]) -> ssl.SSLContext | bool:
    """Return a context that trusts the cluster and presents its administrator's certificate."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    if "certificate-authority-data" not in cluster:
        return True
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.TemporaryDirectory(prefix="kapsa-proxy-") as directory:
        certificate, key = Path(directory) / "client.crt", Path(directory) / "client.key"
        certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        key.touch(mode=0o600)
        key.write_bytes(base64.b64decode(user["client-key-data"]))
        context.load_cert_chain(certificate, key)
    return context
