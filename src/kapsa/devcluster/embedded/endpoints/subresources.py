"""Paths below an object: status, scale, finalize, eviction, binding and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.authentication.tokens import Tokens
from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.go_types import DecodingError, check_types
from kapsa.devcluster.embedded.codec.posted_kinds import BINDING, EVICTION, SCALE
from kapsa.devcluster.embedded.codec.scale import scale_of, with_replicas
from kapsa.devcluster.embedded.codec.version_conversion import from_storage
from kapsa.devcluster.embedded.endpoints.eviction import evict
from kapsa.devcluster.embedded.endpoints.resource_request import ResourceRequest
from kapsa.devcluster.embedded.endpoints.subresource_parts import PARTS
from kapsa.devcluster.embedded.endpoints.token_request import create_token
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, Subresource
from kapsa.devcluster.embedded.replies.negotiation import negotiate
from kapsa.devcluster.embedded.replies.tables import scale_table
from kapsa.devcluster.embedded.replies.writer import reply_document
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.embedded.requests.parameters import DeleteParameters, WriteMethod, write_parameters
from kapsa.devcluster.embedded.verbs import bindings, patches, writes
from kapsa.devcluster.embedded.verbs.decoder import cannot_decode, drop_unknown_fields
from kapsa.devcluster.embedded.verbs.writes import Transform
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Reply
from kapsa.schemas.field_errors import aggregate, not_supported, required
from kapsa.schemas.schema import Schema

__all__ = ["LogReader", "bind_named", "serve"]

Object = dict[str, Any]

LogReader = Callable[[Object, str], Reply]
"""Returns the log of a pod for a raw query."""


async def serve(request: ResourceRequest, verb: str, read_log: LogReader | None, tokens: Tokens) -> Reply:
    """Apply the verb to the subresource that the path names."""
    subresource = request.info.subresource(request.route.subresource)
    if subresource is None or not request.route.name:
        raise errors.resource_not_found()
    if verb not in subresource.verbs or request.route.rest:
        raise errors.method_not_allowed()
    if subresource.name == "scale":
        return await _scale(request, verb)
    if subresource.name in PARTS:
        return await _part_of_object(request, verb)
    if subresource.name == "eviction":
        return await _evict(request)
    if subresource.name == "binding":
        return await _bind(request)
    if subresource.name == "token":
        return await create_token(request, tokens)
    stored = request.stored()
    if subresource.name == "log" and read_log is not None:
        return read_log(from_storage(request.info, stored), request.request.query)
    raise _needs_a_node(request.info, subresource)


def _needs_a_node(info: ResourceInfo, subresource: Subresource) -> errors.StatusError:
    return errors.StatusError(
        501,
        "NotImplemented",
        f"the embedded devcluster does not serve {info.resource}/{subresource.name}, "
        "because nothing runs behind its pods and nodes; use the real engine",
    )


async def _part_of_object(request: ResourceRequest, verb: str) -> Reply:
    if verb == "get":
        return request.writer().object(200, request.stored())
    return await (request.update() if verb == "update" else request.patch())


# Scale


async def _scale(request: ResourceRequest, verb: str) -> Reply:
    form = negotiate(request.request)
    info = request.info
    if verb == "get":
        scale = scale_of(info, from_storage(info, request.stored()))
        if form.target == "Table":
            scale = scale_table(info, scale, now=request.backend.clock.now(), version=form.meta_version)
        return reply_document(200, scale, form)
    if verb == "update":
        write = request.write(WriteMethod.UPDATE)
        posted = request.posted(SCALE, WriteMethod.UPDATE)
        transform = _scale_patching(request, lambda _scale: posted)
    else:
        media_type = patches.media_type_of(request.request, info)
        write = request.write(patches.method_of(media_type))
        if write.method is WriteMethod.APPLY:
            transform = patches.scale_applying(request.request, write, request.backend)
        else:
            change = patches.scale_change_of(media_type, request.request)
            transform = _scale_patching(request, _typed(write, change))
    written = await writes.update(request.backend, write, transform)
    return reply_document(200, scale_of(info, from_storage(info, written.stored)), form, request.warnings)


def _scale_patching(request: ResourceRequest, change: Callable[[Object], Object]) -> Transform:
    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(request.info, request.route.name)
        return _scaled(request, live, change(scale_of(request.info, live, to_write=True)))

    return transform


def _typed(write: WriteRequest, change: Callable[[Object], Any]) -> Callable[[Object], Object]:
    """Return the change, with an error where its result is not a Scale."""

    def patch(scale: Object) -> Object:
        patched = change(scale)
        if not isinstance(patched, dict):
            raise cannot_decode(write, patched, bodies.no_object(patched))
        try:
            check_types(SCALE.schema or Schema(), patched, SCALE)
        except DecodingError as error:
            raise cannot_decode(write, patched, str(error)) from None
        drop_unknown_fields(write, SCALE.schema or Schema(), patched)
        return patched

    return patch


def _scaled(request: ResourceRequest, live: Object, scale: Object) -> Object:
    name = (scale.get("metadata") or {}).get("name") or ""
    if name != request.route.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({request.route.name})"
            if name
            else f"the name of the object ({request.route.name} based on URL) was undeterminable: name must be provided"
        )
    return with_replicas(request.info, live, scale)


# Pods


async def _evict(request: ResourceRequest) -> Reply:
    """Delete a pod if its disruption budget allows it."""
    form = negotiate(request.request)
    dry_run = write_parameters(request.request, WriteMethod.CREATE).dry_run
    eviction = request.posted(EVICTION)
    if eviction["metadata"].get("name") != request.route.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    parameters = msgspec.convert(eviction.get("deleteOptions") or {}, DeleteParameters)
    parameters.validate()
    if dry_run:
        parameters = msgspec.structs.replace(parameters, dry_run=["All"])
    pod = from_storage(request.info, request.stored())
    status = await evict(request.backend, request.deletion(request.route.name, parameters), pod)
    return reply_document(status["code"], status, form, request.warnings)


async def _bind(request: ResourceRequest) -> Reply:
    """Assign the pod of the path to the node of a binding."""
    posted = request.posted(BINDING)
    metadata, target = posted.get("metadata") or {}, posted.get("target") or {}
    if metadata.get("name") != request.route.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    problems = []
    if target.get("kind") not in (None, "", "Node"):
        problems.append(not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        problems.append(required("target.name"))
    if problems:
        raise errors.StatusError(500, "", aggregate(problems))
    form = negotiate(request.request)
    parameters = write_parameters(request.request, WriteMethod.CREATE)
    write = request.write(WriteMethod.UPDATE, parameters)
    await bindings.bind(request.backend, write, target["name"], metadata)
    return reply_document(201, _SUCCESS, form, request.warnings)


async def bind_named(request: ResourceRequest) -> Reply:
    """Assign the pod that a binding names: bindings have a path of their own, too, and are never stored."""
    name = request.posted(BINDING)["metadata"].get("name") or ""
    pods = request.backend.registry.get("", "v1", "pods")
    route = msgspec.structs.replace(request.route, resource="pods", name=name, subresource="binding")
    return await _bind(ResourceRequest(request.backend, request.request, route, pods, frozen=request.frozen))


_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
