"""An image registry on loopback: the OCI distribution API, with failures on demand.

    with RegistryServer() as registry:
        digest = registry.push("team/app", "1.0")                    # an image, as a build pushes it
        registry.login = ("builder", "secret")                       # by token, or by basic auth if token_login=False
        registry.fail(503, times=2, path="/v2/team/app/manifests/")  # fails the next two requests
        await ImageRegistry(registry.endpoint, GuardedHttpClient(address_guard=None), insecure=True).digest(...)

`handle` is the registry without sockets. `registry.http` replaces `GuardedHttpClient` in tests on virtual
time.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiohttp import web

from kapsa.adapters.http.client import HttpResponse
from kapsa.adapters.oci.chart_artifact import CHART_CONFIG, CHART_LAYER
from kapsa.adapters.testing._loopback_server import LoopbackServer, basic_login
from kapsa.adapters.testing._received_request import ReceivedRequest

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_NAME = r"(?P<name>[a-z0-9]+(?:[._/-][a-z0-9]+)*)"
_ROUTES = tuple(
    (re.compile(pattern), handler)
    for pattern, handler in (
        (rf"/v2/{_NAME}/manifests/(?P<reference>[^/]+)", "_manifests"),
        (rf"/v2/{_NAME}/blobs/uploads/(?P<upload>[0-9a-f]*)", "_uploads"),
        (rf"/v2/{_NAME}/blobs/(?P<digest>[^/]+)", "_blobs"),
        (rf"/v2/{_NAME}/tags/list", "_tags"),
    )
)
_NO_HEADERS: Mapping[str, str] = {}


class _Failure(msgspec.Struct):
    status: int
    times: int
    path: str
    method: str
    headers: Mapping[str, str]


class RegistryServer(LoopbackServer):
    """An image registry in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.login: tuple[str, str] | None = None
        """The required user name and password; None allows anonymous access."""
        self.token_login = True
        """True if a login is by token; otherwise user name and password are sent with each request."""
        self.identity_token = ""
        """A refresh token that is accepted instead of user name and password, if set."""
        self.readable = True
        """True if a logged-in client may read."""
        self.returns_digests = True
        self.supports_deletion = True
        """True if manifests can be deleted."""
        self.supports_head = True
        self.redirect_to = ""
        """The URL that requests for manifests are redirected to, if set."""
        self.http = _InProcess(self)
        """A client of the registry that works without sockets."""
        self._manifests_of: dict[str, dict[str, tuple[str, bytes]]] = {}
        self._tags_of: dict[str, dict[str, str]] = {}
        self._contents: dict[str, bytes] = {}
        self._running_uploads: dict[str, bytearray] = {}
        self._tokens: dict[str, str] = {}
        self._failures: list[_Failure] = []

    @property
    def endpoint(self) -> str:
        """Its host and port, as in image names."""
        return f"127.0.0.1:{self.port}" if self.port else "registry.test"

    def push(self, repository: str, tag: str, content: bytes = b"layer") -> str:
        """Push an image. Return its digest."""
        return self._push(repository, tag, self._describe(_CONFIG, b"{}"), self._describe(_LAYER, content))

    def push_chart(self, repository: str, tag: str, archive: bytes) -> str:
        """Push a Helm chart. Return the digest of its manifest."""
        config = self._describe(CHART_CONFIG, b"{}")
        return self._push(repository, tag, config, self._describe(CHART_LAYER, archive))

    def corrupt(self, content: bytes) -> None:
        """Serve other bytes under the digest of this content from now on."""
        self._contents[_digest(content)] = b"corrupt"

    def _push(self, repository: str, tag: str, config: dict[str, Any], layer: dict[str, Any]) -> str:
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [layer]}
        body = json.dumps(manifest).encode()
        digest = _digest(body)
        self._manifests_of.setdefault(repository, {})[digest] = (_MANIFEST, body)
        self._tags_of.setdefault(repository, {})[tag] = digest
        return digest

    def tags(self, repository: str) -> list[str]:
        """Return the tags of a repository."""
        return sorted(self._tags_of.get(repository, ()))

    def remove(self, repository: str, tag: str) -> None:
        """Remove a tag."""
        self._tags_of[repository].pop(tag)

    def fail(
        self,
        status: int,
        *,
        times: int = 1,
        path: str = "/",
        method: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        """Respond with this status to the next requests whose path starts with `path`."""
        self._failures.append(_Failure(status, times, path, method, headers))

    async def respond(self, request: web.Request) -> web.Response:
        """Return the response to a request."""
        response = self.handle(request.method, str(request.url), dict(request.headers), await request.read())
        body = b"" if request.method == "HEAD" else response.body
        return web.Response(status=response.status, headers=dict(response.headers), body=body)

    def handle(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Return the response to one request."""
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        received = ReceivedRequest(method, parts.path, {key.lower(): value for key, value in headers.items()})
        self.requests.append(received)
        for failure in self._failures:
            if failure.times > 0 and parts.path.startswith(failure.path) and failure.method in ("", method):
                failure.times -= 1
                return _error(failure.status, "UNAVAILABLE", headers=failure.headers)
        if parts.path == "/token":
            return self._issue(method, query, received, body)
        if (rejection := self._check(received, f"{parts.scheme}://{parts.netloc}")) is not None:
            return rejection
        if parts.path == "/v2/":
            return HttpResponse(200, {"Docker-Distribution-Api-Version": "registry/2.0"}, b"{}")
        for pattern, handler in _ROUTES:
            if match := pattern.fullmatch(parts.path):
                response: HttpResponse = getattr(self, handler)(received, query, body, **match.groupdict())
                return response
        return _error(404, "NAME_UNKNOWN")

    def _check(self, received: ReceivedRequest, base: str) -> HttpResponse | None:
        """Return the rejection of a request, or None if it is allowed."""
        if self.login is None:
            return None
        given = received.headers.get("authorization", "")
        if not self.token_login:
            if given == basic_login(*self.login):
                return None if self.readable else _error(403, "DENIED")
            return _error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": 'Basic realm="registry"'})
        name = re.match(r"/v2/(.+)/(?:manifests|blobs|tags)/", received.path)
        action = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}.get(received.method, "pull,push")
        scope = f"repository:{name[1]}:{action}" if name else ""
        granted = self._tokens.get(given.removeprefix("Bearer "))
        if granted is not None and (granted == scope or granted == f"{scope},push"):
            return None if self.readable else _error(403, "DENIED")
        challenge = f'Bearer realm="{base}/token",service="registry.test"'
        if scope:
            challenge += f',scope="{scope}"'
        return _error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": challenge})

    def _issue(
        self, method: str, query: Mapping[str, str], received: ReceivedRequest, body: bytes
    ) -> HttpResponse:
        form = (
            {key: values[0] for key, values in parse_qs(body.decode()).items()} if method == "POST" else query
        )
        if method == "POST":
            valid = bool(self.identity_token) and form.get("refresh_token") == self.identity_token
        else:
            valid = self.login is not None and received.headers.get("authorization") == basic_login(
                *self.login
            )
        if not valid or form.get("service") != "registry.test":
            return _error(401, "UNAUTHORIZED")
        token = secrets.token_hex(16)
        self._tokens[token] = form.get("scope", "")
        return _json(200, {"token": token, "expires_in": 300})

    def forget_tokens(self) -> None:
        """Invalidate all tokens."""
        self._tokens.clear()

    def _manifests(
        self, received: ReceivedRequest, query: Mapping[str, str], body: bytes, name: str, reference: str
    ) -> HttpResponse:
        if self.redirect_to and received.method in ("GET", "HEAD"):
            return HttpResponse(307, {"Location": self.redirect_to + received.path})
        stored, tags = self._manifests_of.setdefault(name, {}), self._tags_of.setdefault(name, {})
        if received.method == "PUT":
            digest = _digest(body)
            if reference.startswith("sha256:") and reference != digest:
                return _error(400, "DIGEST_INVALID")
            stored[digest] = (received.headers.get("content-type", _MANIFEST), body)
            if not reference.startswith("sha256:"):
                tags[reference] = digest
            return HttpResponse(
                201, {"Location": f"/v2/{name}/manifests/{digest}", "Docker-Content-Digest": digest}
            )
        digest = tags.get(reference, reference)
        if digest not in stored:
            return _error(404, "MANIFEST_UNKNOWN")
        if received.method == "DELETE":
            return self._delete(name, reference, digest)
        if received.method == "HEAD" and not self.supports_head:
            return _error(405, "UNSUPPORTED")
        media_type, content = stored[digest]
        headers = {"Content-Type": media_type}
        if self.returns_digests:
            headers["Docker-Content-Digest"] = digest
        return HttpResponse(200, headers, content)

    def _delete(self, name: str, reference: str, digest: str) -> HttpResponse:
        """Delete a tag, or a manifest by its digest with all its tags."""
        if not self.supports_deletion:
            return _error(405, "UNSUPPORTED")
        tags = self._tags_of[name]
        if reference in tags:
            del tags[reference]
        else:
            del self._manifests_of[name][digest]
            self._tags_of[name] = {tag: kept for tag, kept in tags.items() if kept != digest}
        return HttpResponse(202, {})

    def _blobs(
        self, received: ReceivedRequest, query: Mapping[str, str], body: bytes, name: str, digest: str
    ) -> HttpResponse:
        if digest not in self._contents:
            return _error(404, "BLOB_UNKNOWN")
        if received.method == "DELETE":
            del self._contents[digest]
            return HttpResponse(202, {})
        return HttpResponse(
            200,
            {"Docker-Content-Digest": digest, "Content-Type": "application/octet-stream"},
            self._contents[digest],
        )

    def _uploads(
        self, received: ReceivedRequest, query: Mapping[str, str], body: bytes, name: str, upload: str
    ) -> HttpResponse:
        if received.method == "POST":
            upload = secrets.token_hex(8)
            self._running_uploads[upload] = bytearray()
            if "digest" not in query:
                return HttpResponse(202, {"Location": f"/v2/{name}/blobs/uploads/{upload}", "Range": "0-0"})
        if upload not in self._running_uploads:
            return _error(404, "BLOB_UPLOAD_UNKNOWN")
        content = self._running_uploads[upload]
        content += body
        if received.method == "PATCH":
            return HttpResponse(
                202,
                {"Location": f"/v2/{name}/blobs/uploads/{upload}", "Range": f"0-{max(0, len(content) - 1)}"},
            )
        del self._running_uploads[upload]
        digest = _digest(bytes(content))
        if query.get("digest") != digest:
            return _error(400, "DIGEST_INVALID")
        self._contents[digest] = bytes(content)
        return HttpResponse(201, {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest})

    def _tags(
        self, received: ReceivedRequest, query: Mapping[str, str], body: bytes, name: str
    ) -> HttpResponse:
        if name not in self._tags_of:
            return _error(404, "NAME_UNKNOWN")
        tags = sorted(tag for tag in self._tags_of[name] if tag > query.get("last", ""))
        limit = int(query.get("n", len(tags)))
        headers = {}
        if limit < len(tags):
            headers["Link"] = f'</v2/{name}/tags/list?n={limit}&last={tags[limit - 1]}>; rel="next"'
        return _json(200, {"name": name, "tags": tags[:limit]}, headers)

    def _describe(self, media_type: str, content: bytes) -> dict[str, Any]:
        digest = _digest(content)
        self._contents[digest] = content
        return {"mediaType": media_type, "digest": digest, "size": len(content)}


class _InProcess:
    """A replacement for `GuardedHttpClient` that sends all requests to one registry, whatever their host."""

    def __init__(self, server: RegistryServer) -> None:
        self._server = server

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        verify: bool = True,
        limit: int = 4 * 1024 * 1024,
    ) -> HttpResponse:
        response = self._server.handle(method, url, headers, body)
        return msgspec.structs.replace(response, body=b"") if method == "HEAD" else response


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(status: int, content: Any, headers: Mapping[str, str] = _NO_HEADERS) -> HttpResponse:
    return HttpResponse(status, {"Content-Type": "application/json", **headers}, json.dumps(content).encode())


def _error(status: int, code: str, *, headers: Mapping[str, str] = _NO_HEADERS) -> HttpResponse:
    return _json(status, {"errors": [{"code": code, "message": code.lower().replace("_", " ")}]}, headers)
