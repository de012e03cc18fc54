"""Commits: the step from an object to a change in the store. Nothing else in the engine writes to the store."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec import protobuf
from kapsa.devcluster.embedded.codec.stored_form import decode, stored_form, with_revision
from kapsa.devcluster.embedded.kinds.bootstrap_objects import BootstrapObject, Template
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["commit", "commit_stored", "commit_template", "furnish", "remove", "rewrite"]

Object = dict[str, Any]

_LIMIT = 3 * 512 * 1024
"""The largest request that etcd takes."""
_CLIENT_LIMIT = 4 * 512 * 1024
"""The largest request that etcd's client sends."""
_STORED_AS_JSON = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def commit(backend: Backend, info: ResourceInfo, obj: Object) -> Stored:
    """Store an object of the stored version under the next revision, which is set in the object."""
    revision = backend.store.next_revision
    obj["metadata"]["resourceVersion"] = str(revision)
    stored = stored_form(info, obj, revision)
    _check_size(info, stored)
    backend.collection(info).put(stored)
    return stored


def commit_stored(backend: Backend, info: ResourceInfo, stored: Stored) -> Stored:
    """Store an encoded object under the next revision."""
    _check_size(info, stored)
    stored = with_revision(stored, backend.store.next_revision)
    backend.collection(info).put(stored)
    return stored


def rewrite(backend: Backend, info: ResourceInfo, obj: Object, revision: int) -> None:
    """Replace the bytes of a stored object at its revision, without a change or an event."""
    backend.collection(info).rewrite(stored_form(info, obj, revision))


def commit_template(backend: Backend, obj: BootstrapObject, template: Template, uid: str = "") -> None:
    """Store an object of the bootstrap data under the next revision, by default with a new UID."""
    revision = backend.store.next_revision
    uid = uid or backend.new_uid()
    body = b"%b%b%b%d%b" % (template.start, uid.encode(), template.middle, revision, template.end)
    stored = Stored(obj.key, obj.namespace, obj.name, uid, revision, obj.labels, body)
    backend.store.collection(obj.group, obj.resource).put(stored)


def remove(backend: Backend, info: ResourceInfo, live: Stored) -> Stored:
    """Remove an object from the store and return its last state, at the revision of its deletion."""
    last = with_revision(live, backend.store.next_revision)
    backend.collection(info).remove(last)
    return last


def furnish(backend: Backend, info: ResourceInfo, obj: Object) -> None:
    """Store an object that each cluster starts with, unless it exists.

    It skips admission, validation and defaults: loading the schemas would slow down the start.
    """
    meta = obj["metadata"]
    if backend.collection(info).get(info.object_key(meta.get("namespace", ""), meta["name"])) is not None:
        return
    system = {"uid": backend.new_uid(), "creationTimestamp": backend.now()}
    commit(backend, info, {**obj, "metadata": {**meta, **system}})


def _check_size(info: ResourceInfo, stored: Stored) -> None:
    """Reject an object that etcd would reject, in the words of its server or its client."""
    if len(stored.body) <= _LIMIT:
        return
    is_json = info.is_custom or info.group in _STORED_AS_JSON
    size = len(stored.body) if is_json else len(protobuf.encode(decode(stored)))
    if size > _CLIENT_LIMIT:
        text = f"trying to send message larger than max ({size} vs. {_CLIENT_LIMIT})"
        raise StatusError(500, "", f"rpc error: code = ResourceExhausted desc = {text}")
    if size > _LIMIT:
        raise StatusError(500, "", "etcdserver: request is too large")
