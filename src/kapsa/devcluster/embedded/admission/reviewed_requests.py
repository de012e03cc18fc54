"""Writes and deletions as webhooks and policies see them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.admission.webhook_match import ReviewedRequest, in_version
from kapsa.devcluster.embedded.codec.go_types import DecodingError, check_metadata, check_types
from kapsa.devcluster.embedded.codec.written_form import write_as_go
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.wire.status_errors import internal
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.pruning import prune, unknown_fields

__all__ = ["read_back", "reviewed_deletion", "reviewed_write"]

Object = dict[str, Any]


def reviewed_write(write: WriteRequest, obj: Object, old: Object | None) -> ReviewedRequest:
    """Return a write as admission reviews show it."""
    creates = old is None
    kind = "CreateOptions" if creates else write.method.options_kind
    options: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if write.parameters.dry_run:
        options["dryRun"] = ["All"]
    if write.parameters.force is not None:
        options["force"] = write.parameters.force
    options |= dict(write.parameters.explicit)
    return ReviewedRequest(
        info=write.info,
        operation="CREATE" if creates else "UPDATE",
        namespace=write.namespace,
        name=write.name,
        subresource=write.subresource,
        user=write.user,
        dry_run=write.parameters.dry_run,
        options=options,
        object=obj,
        old=old,
    )


async def read_back(
    source: ResourceInfo, info: ResourceInfo, patched: Any, *, strict: bool = False
) -> Object:
    """Decode a patched object from the version it was patched in: without unknown fields, with defaults.

    Raises StatusError 500 for a value of a wrong type, and if `strict` for an unknown field.
    """
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise internal("the patched object is no longer an object")
    obj = await in_version(source, info, patched)
    assert obj is not None
    if info.schema is None:
        return obj
    try:
        if info.is_custom:
            check_metadata(obj)
        else:
            check_types(info.schema, obj, info)
            write_as_go(info.schema, obj)
    except DecodingError as error:
        raise internal(str(error)) from None
    if strict and not info.is_custom and (unknown := unknown_fields(info.schema, obj)):
        raise internal(f"strict decoding error: {', '.join(unknown)}")
    prune(info.schema, obj)
    apply_defaults(info.schema, obj)
    return obj


def _plain_options(deletion: DeleteRequest) -> Object:
    options = deletion.parameters
    plain: Object = {}
    if options.grace_period_seconds is not None:
        plain["gracePeriodSeconds"] = options.grace_period_seconds
    if options.propagation_policy is not None:
        plain["propagationPolicy"] = options.propagation_policy
    return {**plain, **({"dryRun": ["All"]} if deletion.dry_run else {})}


def reviewed_deletion(deletion: DeleteRequest, obj: Object) -> ReviewedRequest:
    """Return a deletion as admission reviews show it."""
    return ReviewedRequest(
        info=deletion.info,
        operation="DELETE",
        namespace=deletion.namespace,
        name=deletion.name,
        user=deletion.user,
        dry_run=deletion.dry_run,
        options={"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **_plain_options(deletion)},
        old=obj,
    )
