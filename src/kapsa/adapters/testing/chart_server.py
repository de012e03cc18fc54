"""A chart repository on loopback: an index and archives over HTTP, with failures on demand.

with ChartServer() as server:
    server.add(pack_chart("app", "1.0.0", {"templates/a.yaml": "..."}))
    server.login = ("reader", "secret")
    await ChartRepository(server.url, GuardedHttpClient(address_guard=None), allow_http=True).versions("app")
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.adapters.testing._loopback_server import LoopbackServer, basic_login
from kapsa.adapters.testing._received_request import ReceivedRequest

__all__ = ["ChartServer", "pack_chart"]

_NO_FILES: Mapping[str, str | bytes] = {}


def pack_chart(
    name: str, version: str, files: Mapping[str, str | bytes] = _NO_FILES, **metadata: Any
) -> bytes:
    """Return the archive of a chart with these files: the same bytes for the same content."""
    chart = {"apiVersion": "v2", "name": name, "version": version, **metadata}
    content: dict[str, str | bytes] = {"Chart.yaml": json.dumps(chart), **files}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in content.items():
            data = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


class ChartServer(LoopbackServer):
    """A chart repository in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.login: tuple[str, str] | None = None
        """The required user name and password; None allows anonymous access."""
        self.index: bytes | None = None
        """An index to serve instead of the generated one."""
        self.digests = True
        """True if the index has digests."""
        self.base = ""
        """The start of the addresses in the index: empty for relative ones, or `http://host:port/`."""
        self.redirects: dict[str, str] = {}
        """The target of the redirect by the path of the request."""
        self.statuses: dict[str, int] = {}
        """The status of the response by the path of the request, instead of its content."""
        self.archives: dict[str, bytes] = {}
        """The archives by path, such as `/charts/app-1.0.0.tgz`."""
        self._entries: dict[str, list[dict[str, Any]]] = {}

    @property
    def url(self) -> str:
        """The address of the repository."""
        return f"http://127.0.0.1:{self.port}"

    def add(self, archive: bytes) -> str:
        """Add a chart. Return its digest."""
        metadata = read_archive(archive).metadata
        path = f"charts/{metadata.name}-{metadata.version}.tgz"
        digest = hashlib.sha256(archive).hexdigest()
        entry = {"name": metadata.name, "version": metadata.version, "path": path, "digest": digest}
        self._entries.setdefault(metadata.name, []).append(entry)
        self.archives[f"/{path}"] = archive
        return f"sha256:{digest}"

    async def respond(self, request: web.Request) -> web.Response:
        """Return the response to a request."""
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.requests.append(ReceivedRequest(request.method, request.path, headers))
        if request.path in self.statuses:
            return web.Response(status=self.statuses[request.path])
        if request.path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[request.path]})
        if self.login is not None and headers.get("authorization") != basic_login(*self.login):
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="charts"'})
        if request.path == "/index.yaml":
            return web.Response(body=self.index if self.index is not None else self._index())
        if (archive := self.archives.get(request.path)) is not None:
            return web.Response(body=archive, content_type="application/gzip")
        return web.Response(status=404)

    def _index(self) -> bytes:
        entries = {
            name: [
                {
                    "name": each["name"],
                    "version": each["version"],
                    "urls": [f"{self.base}{each['path']}"],
                    **({"digest": each["digest"]} if self.digests else {}),
                }
                for each in versions
            ]
            for name, versions in self._entries.items()
        }
        return json.dumps({"apiVersion": "v1", "entries": entries}).encode()
