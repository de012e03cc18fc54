"""Endpoints of resources: authorizes a request, resolves its resource, and routes it to a verb."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.authentication.tokens import Tokens
from kapsa.devcluster.embedded.authorization.attributes import attributes_of
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer, check
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.endpoints import reviews, subresources
from kapsa.devcluster.embedded.endpoints.resource_request import ResourceRequest
from kapsa.devcluster.embedded.endpoints.subresources import LogReader
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.replies.negotiation import negotiate
from kapsa.devcluster.embedded.replies.writer import reply_document, warning_header
from kapsa.devcluster.embedded.requests.parameters import (
    ListParameters,
    WriteMethod,
    list_parameters,
    write_parameters,
)
from kapsa.devcluster.embedded.storage.store import CompactedError, FutureRevisionError, Stored
from kapsa.devcluster.embedded.verbs import deletion, pages, writes
from kapsa.devcluster.embedded.verbs.selection import selection
from kapsa.devcluster.embedded.verbs.watch import WatchStream, too_old, watch_revision
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, Reply, Request
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.routes import ResourceRoute
from kapsa.devcluster.wire.watch_events import error_stream
from kapsa.schemas import go_format

__all__ = ["ResourceEndpoints"]

Object = dict[str, Any]
_RETURN_DELETED = frozenset(
    {
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)
"""Kinds whose deletion returns the object; others return a Status."""


class ResourceEndpoints:
    """The endpoints of every path under `/api` and `/apis` that names a resource."""

    def __init__(self, backend: Backend, authorizer: Authorizer, tokens: Tokens) -> None:
        self._backend = backend
        self._authorizer = authorizer
        self._tokens = tokens
        self.read_log: LogReader | None = None
        """Reads the logs of pods, if controllers simulate the nodes."""

    async def serve(
        self, request: Request, route: ResourceRoute, verb: str, frozen: int | None = None
    ) -> Reply:
        """Serve one request. Raises StatusError or PlainError when it is rejected."""
        registry = self._backend.registry
        info = registry.find(route.group, route.version, route.resource)
        if not self._authorizer.trusts(request.user or ADMIN):
            check(self._authorizer, attributes_of(request, route))
        if info is None:
            if registry.has_group_version(route.group, route.version) or registry.is_builtin(route.group):
                raise errors.resource_not_found()
            raise errors.page_not_found()
        resource_request = ResourceRequest(self._backend, request, route, info, frozen=frozen)
        try:
            return await self._route(resource_request, verb)
        except errors.StatusError as error:
            error.headers |= warning_header(resource_request.warnings)
            raise

    async def _route(self, request: ResourceRequest, verb: str) -> Reply:
        route, info = request.route, request.info
        if route.subresource and info.subresource(route.subresource) is None:
            raise errors.resource_not_found()
        if problems := names.path_segment(route.name):
            quoted = go_format.quote(route.name)
            raise errors.bad_request(f"Name parameter invalid: {quoted}: {'; '.join(problems)}")
        if route.namespace and not info.namespaced:
            raise errors.page_not_found() if info.is_custom else errors.resource_not_found()
        if route.subresource:
            return await subresources.serve(request, verb, self.read_log, self._tokens)
        if info.namespaced and not route.namespace and (route.name or verb == "create"):
            raise errors.method_not_allowed() if verb == "create" else errors.resource_not_found()
        if (info.group, info.resource) in reviews.REVIEWS:
            return _review(request, verb, self._authorizer, self._tokens)
        if verb not in info.verbs or (
            verb in ("create", "update", "patch") and bool(route.name) is (verb == "create")
        ):
            raise errors.method_not_allowed()
        if (info.group, info.resource) == ("", "bindings"):
            return await subresources.bind_named(request)
        match verb:
            case "get":
                return await _get(request)
            case "list":
                return await _list(request)
            case "watch":
                return _watch(request)
            case "create":
                return await _create(request)
            case "update":
                return await request.update()
            case "patch":
                return await request.patch()
            case "delete":
                return await _delete(request)
            case _:
                return await _delete_collection(request)


async def _get(request: ResourceRequest) -> Reply:
    writer = request.writer()
    if "resourceVersion" in request.request.query:
        _check_get_revision(request)
    stored = request.stored()
    await request.prepare([stored])
    return writer.object(200, stored)


def _check_get_revision(request: ResourceRequest) -> None:
    text = parse_query(request.request.query).get("resourceVersion", [""])[0]
    revision, current = watch_revision(text), request.backend.store.revision
    if revision > current:
        raise pages.too_large_revision(FutureRevisionError(revision, current))


async def _list(request: ResourceRequest) -> Reply:
    writer = request.writer()
    parameters = list_parameters(request.request.query)
    chosen = selection(request.info, request.route.namespace, parameters)
    page = pages.read_page(
        request.backend.store, request.collection, chosen, parameters, frozen=request.frozen
    )
    await request.prepare(page.items)
    return writer.page(page)


def _watch(request: ResourceRequest) -> Reply:
    writer = request.writer(stream=True)
    parameters = list_parameters(request.request.query, watch=True)
    watch = WatchStream(
        request.backend.store,
        request.collection,
        selection(request.info, request.route.namespace, parameters, request.route.name),
        parameters,
        bookmark=writer.bookmark,
        view=writer.view,
        prepare=None if request.info.converter is None else request.info.converter.prepare,
        timeout=_watch_timeout(request, parameters),
    )
    try:
        watch.open()
    except CompactedError as error:
        return Reply(status=200, headers=writer.headers(), body=error_stream(too_old(error)))
    return Reply(status=200, headers=writer.headers(), body=watch.events())


def _watch_timeout(request: ResourceRequest, parameters: ListParameters) -> float:
    if parameters.timeout_seconds is not None:
        return float(parameters.timeout_seconds)
    return 1800.0 * (1.0 + request.backend.random.random())


async def _create(request: ResourceRequest) -> Reply:
    writer = request.writer()
    write, obj = request.submitted(WriteMethod.CREATE)
    stored = await writes.create(request.backend, write, obj)
    return writer.object(201, stored)


async def _delete(request: ResourceRequest) -> Reply:
    writer = request.writer()
    parameters = request.delete_parameters()
    stored, gone = await deletion.delete(request.backend, request.deletion(request.route.name, parameters))
    code = 202 if not gone and parameters.orphan_dependents is False else 200
    if not gone or (request.info.group, request.info.resource) in _RETURN_DELETED:
        return writer.object(code, stored)
    return reply_document(code, _success(request.info, stored), writer.form, request.warnings)


async def _delete_collection(request: ResourceRequest) -> Reply:
    writer = request.writer()
    selected = list_parameters(request.request.query)
    parameters = request.delete_parameters()
    chosen = selection(request.info, request.route.namespace, selected)
    # With a limit, only the objects of the first page are deleted.
    page = pages.read_page(request.backend.store, request.collection, chosen, _at_exact_revision(selected))
    for stored in page.items:
        try:
            await deletion.delete(
                request.backend, request.deletion(stored.name, parameters, stored.namespace)
            )
        except errors.StatusError as error:
            if error.code != 404:
                raise
    return writer.page(page)


def _at_exact_revision(selected: ListParameters) -> ListParameters:
    """Return the parameters with the revision as an exact one: the real server lists in pages, which implies that."""
    if selected.resource_version in ("", "0") or selected.resource_version_match or selected.continue_token:
        return selected
    return msgspec.structs.replace(selected, resource_version_match="Exact")


def _success(info: ResourceInfo, stored: Stored) -> Object:
    details = {"name": stored.name}
    if info.group:
        details["group"] = info.group
    details |= {"kind": info.resource, "uid": stored.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _review(request: ResourceRequest, verb: str, authorizer: Authorizer, tokens: Tokens) -> Reply:
    if verb != "create" or request.route.name:
        raise errors.method_not_allowed()
    manager = write_parameters(request.request, WriteMethod.CREATE).manager
    reviewed = reviews.review(
        request.backend,
        reviews.Reviewer(authorizer, tokens, request.user),
        request.info,
        request.posted(request.info),
        request.route.namespace,
        manager,
    )
    return reply_document(201, reviewed, negotiate(request.request), request.warnings)
