"""Writes and deletions as webhooks and policies see them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.admission.webhook_match import ReviewedRequest
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest

__all__ = ["reviewed_deletion", "reviewed_write"]

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
