"""Paths below an object: status, scale, finalize, eviction, binding and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.posted_kinds import BINDING, EVICTION, SCALE, decode_posted
from kapsa.devcluster.embedded.codec.scale import scale_of, with_replicas
from kapsa.devcluster.embedded.codec.typed_decoding import DecodingError, check_types
from kapsa.devcluster.embedded.codec.version_conversion import from_storage
from kapsa.devcluster.embedded.endpoints.eviction import take_from_budget
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, Subresource
from kapsa.devcluster.embedded.replies.negotiation import negotiate
from kapsa.devcluster.embedded.replies.writer import reply_document
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import DeleteParameters, WriteMethod, write_parameters
from kapsa.devcluster.embedded.verbs import binding, deletion, patches, writes
from kapsa.devcluster.embedded.verbs.decoding import cannot_decode
from kapsa.devcluster.embedded.verbs.writes import Transform
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Reply
from kapsa.schemas.schema import Schema

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.endpoints.resources import ResourceRequest

__all__ = ["answer", "narrowed"]

Object = dict[str, Any]

_PARTS = frozenset({"status", "approval", "finalize", "ephemeralcontainers", "resize"})


async def answer(request: ResourceRequest, verb: str) -> Reply:
    """Do what the verb says to the subresource that the path names."""
    found = request.info.subresource(request.route.subresource)
    if found is None or not request.route.name:
        raise errors.resource_not_found()
    if verb not in found.verbs or request.route.rest:
        raise errors.method_not_allowed()
    if found.name == "scale":
        return await _scale(request, verb)
    if found.name in _PARTS:
        return await _part_of_object(request, verb)
    if found.name == "eviction":
        return await _evict(request)
    if found.name == "binding":
        return await _bind(request)
    if found.name == "log" and request.backend.read_log is not None:
        return request.backend.read_log(from_storage(request.info, request.stored()), request.request.query)
    request.stored()  # what is not there is missed first
    raise _needs_a_node(request, found)


def _needs_a_node(request: ResourceRequest, found: Subresource) -> errors.StatusError:
    what = f"{request.info.resource}/{found.name}"
    return errors.StatusError(
        501,
        "NotImplemented",
        f"the embedded devcluster has no {what}: nothing runs behind its pods and nodes; use the real engine",
    )


async def _part_of_object(request: ResourceRequest, verb: str) -> Reply:
    if verb == "get":
        return request.writer().object(200, request.stored())
    return await (request.update() if verb == "update" else request.patch())


def narrowed(subresource: str, transform: Transform) -> Transform:
    """The transform, confined to the part of the object that the subresource is."""
    keep = _NARROW.get(subresource)
    if keep is None:
        return transform

    def confined(live: Object | None) -> Object:
        if live is None:
            return transform(None)
        untouched: Object = msgspec.json.decode(msgspec.json.encode(live))
        return keep(untouched, transform(live))

    return confined


def _finalizers_only(live: Object, wanted: Object) -> Object:
    live["spec"] = {
        **(live.get("spec") or {}),
        "finalizers": (wanted.get("spec") or {}).get("finalizers") or [],
    }
    return _same_revision(live, wanted)


def _ephemeral_containers_only(live: Object, wanted: Object) -> Object:
    live["spec"]["ephemeralContainers"] = wanted["spec"].get("ephemeralContainers") or []
    return _same_revision(live, wanted)


def _resources_only(live: Object, wanted: Object) -> Object:
    sizes = {each["name"]: each.get("resources") for each in wanted["spec"].get("containers") or ()}
    for container in live["spec"]["containers"]:
        if sizes.get(container["name"]) is not None:
            container["resources"] = sizes[container["name"]]
    return _same_revision(live, wanted)


def _same_revision(live: Object, wanted: Object) -> Object:
    live["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion", "")
    return live


_NARROW: dict[str, Callable[[Object, Object], Object]] = {
    "finalize": _finalizers_only,
    "ephemeralcontainers": _ephemeral_containers_only,
    "resize": _resources_only,
}


# Scale


async def _scale(request: ResourceRequest, verb: str) -> Reply:
    form = negotiate(request.request)
    info = request.info
    if verb == "get":
        return reply_document(200, scale_of(info, from_storage(info, request.stored())), form)
    if verb == "update":
        write = request.write(WriteMethod.UPDATE)
        transform = _scale_patching(request, lambda _scale: _posted(request, SCALE))
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
    """The change, as long as a Scale comes of it."""

    def patch(scale: Object) -> Object:
        patched = change(scale)
        if not isinstance(patched, dict):
            raise cannot_decode(write, patched, bodies.no_object(patched))
        try:
            check_types(SCALE.schema or Schema(), patched, SCALE)
        except DecodingError as error:
            raise cannot_decode(write, patched, str(error)) from None
        return patched

    return patch


def _posted(request: ResourceRequest, kind: ResourceInfo) -> Object:
    """A body that is no stored kind."""
    content_type = request.request.headers.get("content-type", "")
    return decode_posted(request.request.body, content_type, kind, request.backend.registry)


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
    """Delete a pod, if its disruption budget allows."""
    form = negotiate(request.request)
    eviction = _posted(request, EVICTION)
    if eviction["metadata"].get("name") != request.route.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    take_from_budget(request.backend, from_storage(request.info, request.stored()))
    wanted = eviction.get("deleteOptions") or {}
    await deletion.delete(
        request.backend,
        DeleteRequest(
            info=request.info,
            namespace=request.route.namespace,
            name=request.route.name,
            parameters=DeleteParameters(grace_period_seconds=wanted.get("gracePeriodSeconds")),
            user=request.user,
        ),
    )
    return reply_document(201, _SUCCESS, form)


async def _bind(request: ResourceRequest) -> Reply:
    posted = _posted(request, BINDING)
    node = (posted.get("target") or {}).get("name", "")
    if not node:
        raise errors.StatusError(500, "", "target.name: Required value")
    form = negotiate(request.request)
    parameters = write_parameters(request.request, WriteMethod.CREATE)
    await binding.bind(request.backend, request.write(WriteMethod.UPDATE, parameters), node)
    return reply_document(201, _SUCCESS, form)


_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
