"""The reading half of the client: get, list, watch, logs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from kapsa.runtime.client._codec import Codec
from kapsa.runtime.client.discovery import Discovery
from kapsa.runtime.client.dispatch import Call, CallObserver, Dispatcher, Verb, WriteGate
from kapsa.runtime.client.http.transport import Query, StreamResponse, Transport
from kapsa.runtime.client.retry import RetryPolicy
from kapsa.runtime.client.watch import (
    Bookmark,
    Lines,
    WatchEvent,
    bookmark,
    decode_envelope,
    split_lines,
    watch_error,
)
from kapsa.runtime.clock import Clock, SystemClock
from kapsa.runtime.errors import DecodeError, Expired, TransportError, error_from_response
from kapsa.runtime.resources.api_resource import ApiResource, resource_of
from kapsa.runtime.resources.kind import Kind, Manifest, kind_of
from kapsa.runtime.resources.resource_list import ResourceList
from kapsa.runtime.resources.selector import LabelSelector, selector_text

__all__ = ["GetOptions", "ListOptions", "LogOptions", "Reader", "WatchOptions"]

T = TypeVar("T")

_JSON = {"Accept": "application/json"}
_GZIP_JSON = {"Accept": "application/json", "Accept-Encoding": "gzip"}
_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
_METADATA_LIST = {
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "Accept-Encoding": "gzip",
}
_TEXT = {"Accept": "text/plain, */*"}
_ERROR_BODY_LIMIT = 64 * 1024
_ERROR_BODY_SECONDS = 5.0


class GetOptions(TypedDict, total=False):
    """Options for reading one object."""

    namespace: str
    """The namespace; by default that of the client."""
    subresource: str
    """`status`, `scale` or another; a subresource of another kind needs `into`."""
    metadata_only: bool
    """Return only the metadata."""
    resource_version: str
    """`"0"` allows the server to read from its cache."""


class _Selection(TypedDict, total=False):
    namespace: str
    """The namespace; by default all of them."""
    label_selector: LabelSelector
    field_selector: str
    metadata_only: bool
    """Return only the metadata."""
    resource_version: str


class ListOptions(_Selection, total=False):
    """Options for listing objects."""

    limit: int
    """Objects on a page; 500 by default, 0 for all objects on one page."""
    resource_version_match: str


class WatchOptions(_Selection, total=False):
    """Options for watching objects."""

    send_initial_events: bool
    """Stream the current state first, then a bookmark with `initial_events_end`. Only for a new watch."""
    timeout_seconds: int
    """Seconds after which the server ends the watch."""


class LogOptions(TypedDict, total=False):
    """Options for reading the log of a pod."""

    namespace: str
    container: str
    previous: bool
    """Read the log of the previous run of the container."""
    tail_lines: int
    since_seconds: int
    limit_bytes: int
    timestamps: bool


class Reader:
    """A client that reads objects of one cluster."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock | None = None,
        field_manager: str = "kapsa",
        namespace: str = "default",
        retry: RetryPolicy | None = None,
        before_write: WriteGate | None = None,
        cluster: str = "",
    ) -> None:
        self.clock = clock or SystemClock()
        self.cluster = cluster
        """A description of the cluster for people."""
        self.field_manager = field_manager
        """The manager that owns the fields that this client writes."""
        self.namespace = namespace
        """The namespace of single objects for which none is given."""
        self._dispatcher = Dispatcher(
            transport, clock=self.clock, retry=retry or RetryPolicy(), before_write=before_write
        )
        self.discovery = Discovery(self._fetch, clock=self.clock)
        self._codecs: dict[tuple[Kind, type[Any] | None], Codec] = {}

    @property
    def transport(self) -> Transport:
        """The transport, for a proxy that forwards whole requests: without retries, write gate and observers."""
        return self._dispatcher.transport

    def observe(self, observer: CallObserver) -> None:
        """Call `observer` after each attempt of a request, for instance to record metrics."""
        self._dispatcher.observers.append(observer)

    async def close(self) -> None:
        """Close all connections."""
        await self._dispatcher.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    async def get(self, kind: Kind, name: str, *, into: type[T], **options: Unpack[GetOptions]) -> T: ...
    @overload
    async def get(self, kind: type[T], name: str, **options: Unpack[GetOptions]) -> T: ...
    @overload
    async def get(self, kind: str, name: str, **options: Unpack[GetOptions]) -> Manifest: ...
    async def get(
        self, kind: Kind, name: str, *, into: type[Any] | None = None, **options: Unpack[GetOptions]
    ) -> Any:
        """Return an object: as its class, as a dict if the kind is a string, or as the type `into`."""
        codec = await self._codec(kind, into)
        namespace = self._namespace(codec.resource, options.get("namespace", ""))
        subresource = options.get("subresource", "")
        version = options.get("resource_version")
        response = await self._dispatcher.send(
            call_of("get", codec.resource, namespace, name, subresource),
            "GET",
            codec.resource.object_path(name, namespace, subresource),
            query=(("resourceVersion", version),) if version is not None else (),
            headers=_METADATA if options.get("metadata_only") else _JSON,
            idempotent=True,
        )
        return codec.decode(response.body)

    @overload
    async def list(self, kind: Kind, *, into: type[T], **options: Unpack[ListOptions]) -> ResourceList[T]: ...
    @overload
    async def list(self, kind: type[T], **options: Unpack[ListOptions]) -> ResourceList[T]: ...
    @overload
    async def list(self, kind: str, **options: Unpack[ListOptions]) -> ResourceList[Manifest]: ...
    async def list(
        self, kind: Kind, *, into: type[Any] | None = None, **options: Unpack[ListOptions]
    ) -> ResourceList[Any]:
        """Return all objects, as of one resourceVersion.

        They are read page by page. If the continue token expires in between, all are requested on one page.
        """
        items: list[Any] = []
        version = ""
        try:
            async for page in self._pages(kind, into, options):
                items += page.items
                version = page.resource_version
        except Expired:
            if not items:
                raise
            whole = ListOptions(**{**options, "limit": 0})
            async for page in self._pages(kind, into, whole):
                return page
        return ResourceList(items, version)

    @overload
    def pages(
        self, kind: Kind, *, into: type[T], **options: Unpack[ListOptions]
    ) -> AsyncIterator[ResourceList[T]]: ...
    @overload
    def pages(self, kind: type[T], **options: Unpack[ListOptions]) -> AsyncIterator[ResourceList[T]]: ...
    @overload
    def pages(self, kind: str, **options: Unpack[ListOptions]) -> AsyncIterator[ResourceList[Manifest]]: ...
    def pages(
        self, kind: Kind, *, into: type[Any] | None = None, **options: Unpack[ListOptions]
    ) -> AsyncIterator[ResourceList[Any]]:
        """Return an iterator over the pages of `list`. Raises `Expired` if the continue token expires."""
        return self._pages(kind, into, options)

    async def _pages(
        self, kind: Kind, into: type[Any] | None, options: ListOptions
    ) -> AsyncIterator[ResourceList[Any]]:
        codec = await self._codec(kind, into)
        namespace = options.get("namespace", "")
        path = codec.resource.collection_path(namespace)
        call = call_of("list", codec.resource, namespace)
        query = _selection(options)
        if "resource_version_match" in options:
            query.append(("resourceVersionMatch", options["resource_version_match"]))
        if limit := options.get("limit", 500):
            query.append(("limit", str(limit)))
        headers = _METADATA_LIST if options.get("metadata_only") else _GZIP_JSON
        while True:
            response = await self._dispatcher.send(
                call, "GET", path, query=query, headers=headers, idempotent=True
            )
            page = codec.decode_list(response.body)
            yield page
            if not page.continue_token:
                return
            # A continue token contains the resourceVersion; the server rejects a request with both.
            query = [pair for pair in query if pair[0] not in _FIRST_PAGE_ONLY]
            query.append(("continue", page.continue_token))

    @overload
    def watch(
        self, kind: Kind, *, into: type[T], **options: Unpack[WatchOptions]
    ) -> AsyncIterator[WatchEvent[T] | Bookmark]: ...
    @overload
    def watch(
        self, kind: type[T], **options: Unpack[WatchOptions]
    ) -> AsyncIterator[WatchEvent[T] | Bookmark]: ...
    @overload
    def watch(
        self, kind: str, **options: Unpack[WatchOptions]
    ) -> AsyncIterator[WatchEvent[Manifest] | Bookmark]: ...
    def watch(
        self, kind: Kind, *, into: type[Any] | None = None, **options: Unpack[WatchOptions]
    ) -> AsyncIterator[WatchEvent[Any] | Bookmark]:
        """Return an iterator over changes and bookmarks, until the server ends the watch.

        An error is raised as its type, even if it arrives in the stream (`Expired`: list again). Nothing is
        retried: the informer resumes watches. To leave the loop early, close the iterator with
        `contextlib.aclosing`.
        """
        return self._watch(kind, into, options)

    async def _watch(
        self, kind: Kind, into: type[Any] | None, options: WatchOptions
    ) -> AsyncIterator[WatchEvent[Any] | Bookmark]:
        codec = await self._codec(kind, into)
        namespace = options.get("namespace", "")
        path = codec.resource.collection_path(namespace)
        query = [*_selection(options), ("watch", "true"), ("allowWatchBookmarks", "true")]
        if options.get("send_initial_events"):
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        if timeout := options.get("timeout_seconds"):
            query.append(("timeoutSeconds", str(timeout)))
        headers = _METADATA if options.get("metadata_only") else _JSON
        async for lines in self._lines(call_of("watch", codec.resource, namespace), path, query, headers):
            for line in lines:
                try:
                    envelope = decode_envelope(line)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise DecodeError(f"watch {path}: cannot decode an event: {error}") from error
                match envelope.type:
                    case "ADDED" | "MODIFIED" | "DELETED" as event:
                        yield WatchEvent(event, codec.decode(envelope.object))
                    case "BOOKMARK":
                        yield bookmark(envelope.object)
                    case "ERROR":
                        raise watch_error(envelope.object, f"watch {path}")
                    case other:
                        raise DecodeError(f"watch {path}: unknown event type {other!r}")

    async def logs(self, pod: str, **options: Unpack[LogOptions]) -> str:
        """Return the log of a pod so far."""
        namespace = options.get("namespace") or self.namespace
        codec = await self._codec("v1/Pod", None)
        response = await self._dispatcher.send(
            call_of("get", codec.resource, namespace, pod, "log"),
            "GET",
            codec.resource.object_path(pod, namespace, "log"),
            query=_log_query(options),
            headers=_TEXT,
            idempotent=True,
        )
        return response.body.decode("utf-8", "replace")

    async def follow_logs(self, pod: str, **options: Unpack[LogOptions]) -> AsyncIterator[str]:
        """Yield the lines of a pod's log as they are written, until the pod ends."""
        namespace = options.get("namespace") or self.namespace
        codec = await self._codec("v1/Pod", None)
        call = call_of("get", codec.resource, namespace, pod, "log")
        query = [*_log_query(options), ("follow", "true")]
        path = codec.resource.object_path(pod, namespace, "log")
        async for lines in self._lines(call, path, query, _TEXT, last_line_may_be_open=True):
            for line in lines:
                yield line.decode("utf-8", "replace")

    async def read(self, path: str) -> bytes:
        """Return the content of a path that is not a resource, such as `/version` or `/openapi/v3`."""
        return await self._fetch(path, "application/json")

    async def _lines(
        self,
        call: Call,
        path: str,
        query: Query,
        headers: dict[str, str],
        *,
        last_line_may_be_open: bool = False,
    ) -> AsyncIterator[Lines]:
        started = self.clock.monotonic()
        code = 0
        transport = self._dispatcher.transport
        try:
            async with transport.stream("GET", path, query=query, headers=headers) as response:
                code = response.status
                self._dispatcher.warnings.log(response.headers, "GET", path)
                if code >= 300:
                    body = await _start_of(response)
                    raise error_from_response(code, response.headers, body, action=f"GET {path}")
                self._dispatcher.notify(call, code, self.clock.monotonic() - started)
                async for lines in split_lines(response, last_line_may_be_open=last_line_may_be_open):
                    yield lines
        finally:
            if not 0 < code < 300:
                self._dispatcher.notify(call, code, self.clock.monotonic() - started)

    async def _fetch(self, path: str, accept: str) -> bytes:
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        response = await self._dispatcher.send(Call("get"), "GET", path, headers=headers, idempotent=True)
        return response.body

    async def _codec(self, kind: Kind, into: type[Any] | None) -> Codec:
        codec = self._codecs.get((kind, into))
        if codec is None:
            resource = resource_of(kind) or await self.discovery.resource(kind_of(kind))
            codec = Codec(resource, into or (dict if isinstance(kind, str) else kind))
            self._codecs[kind, into] = codec
        return codec

    def _namespace(self, resource: ApiResource, namespace: str) -> str:
        return (namespace or self.namespace) if resource.namespaced else ""


_FIRST_PAGE_ONLY = ("resourceVersion", "resourceVersionMatch", "continue")


def call_of(verb: Verb, resource: ApiResource, namespace: str, name: str = "", subresource: str = "") -> Call:
    """Return the call in RBAC's terms."""
    return Call(verb, resource.group, resource.plural, subresource, namespace, name)


def _selection(options: _Selection) -> list[tuple[str, str]]:
    query = []
    if labels := selector_text(options.get("label_selector")):
        query.append(("labelSelector", labels))
    if fields := options.get("field_selector"):
        query.append(("fieldSelector", fields))
    if "resource_version" in options:
        query.append(("resourceVersion", options["resource_version"]))
    return query


def _log_query(options: LogOptions) -> list[tuple[str, str]]:
    query = []
    for name, parameter in (
        ("container", "container"),
        ("previous", "previous"),
        ("tail_lines", "tailLines"),
        ("since_seconds", "sinceSeconds"),
        ("limit_bytes", "limitBytes"),
        ("timestamps", "timestamps"),
    ):
        value = options.get(name)
        if value is not None and value is not False:
            query.append((parameter, "true" if value is True else str(value)))
    return query


async def _start_of(response: StreamResponse) -> bytes:
    """Return as much of an error's body as arrives.

    The status must not be lost if the body stalls or breaks off.
    """
    body = b""
    with contextlib.suppress(TimeoutError, TransportError):
        async with asyncio.timeout(_ERROR_BODY_SECONDS):
            async for chunk in response:
                body += chunk
                if len(body) > _ERROR_BODY_LIMIT:
                    break
    return body
