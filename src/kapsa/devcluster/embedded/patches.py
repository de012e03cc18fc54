"""PATCH bodies: each media type as a function from the live object to the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import apply, bodies, errors, patch
from .exchange import Request
from .fieldset import Fields, from_paths
from .registry import ResourceInfo
from .writes import Transform, Write

__all__ = ["APPLY", "patch_type", "transform_of"]

Object = dict[str, Any]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_BUILT_IN = (JSON, MERGE, STRATEGIC, APPLY, "application/apply-patch+cbor")
_CUSTOM = (JSON, MERGE, APPLY, "application/apply-patch+cbor")

RESET_BY_MAIN = from_paths(("status",))
RESET_BY_STATUS = from_paths(("spec",))


def patch_type(request: Request, info: ResourceInfo) -> str:
    """The media type of a patch.

    :raises ApiError: 415 when this kind cannot be patched that way.
    """
    kind = bodies.media_type(request.headers.get("content-type", ""))
    allowed = _CUSTOM if info.is_custom else _BUILT_IN
    if kind not in allowed or kind.endswith("cbor"):
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed)
        )
    return kind


def transform_of(kind: str, request: Request, write: Write, now: str) -> Transform:
    """What a patch of that type does to an object."""
    if kind == APPLY:
        return _applying(request.body, write, now)
    if kind == JSON:
        return _patching(request.body, patch.json_patch, write)
    if kind == MERGE:
        return _patching(request.body, patch.merge_patch, write)
    schema = write.info.schema
    return _patching(
        request.body, lambda live, change: patch.strategic_merge_patch(live, change, schema), write
    )


def _patching(body: bytes, change: Callable[[Object, Any], Any], write: Write) -> Transform:
    decoded = bodies.decode_patch(body)

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        return bodies.check_object(change(live, decoded), write.info)

    return transform


def _applying(body: bytes, write: Write, now: str) -> Transform:
    info = write.info

    def transform(live: Object | None) -> Object:
        applied = bodies.decode_applied(body)
        return apply.apply(
            live,
            applied,
            manager=write.options.manager,
            schema=info.schema,
            force=bool(write.options.force),
            subresource=write.subresource,
            api_version=info.api_version,
            kind=info.kind,
            now=now,
            reset=reset_fields(write),
        )

    return transform


def reset_fields(write: Write) -> Fields:
    """What this endpoint takes from the live object, whatever the request says."""
    if write.subresource == "status":
        return RESET_BY_STATUS
    return RESET_BY_MAIN if write.info.has_status else {}
