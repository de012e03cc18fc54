"""The Kubernetes API client: the same methods for typed and untyped objects.

    web = await client.get("apps/v1/Deployment", "web", namespace="shop")      # a dict
    app = await client.get(MyApp, "web", namespace="shop")                     # a MyApp
    await client.patch(MyApp, "web", {"status": {"ready": 1}}, namespace="shop", subresource="status")

Methods for one object use the namespace of the object, or else of the client; `list` and `watch` use all
namespaces unless one is given.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from kapsa.runtime.client._codec import encode
from kapsa.runtime.client.config import load_config
from kapsa.runtime.client.dispatch import UnansweredWrite, WriteGate
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.client.reader import Reader, call_of
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import NotFound
from kapsa.runtime.resources.identity import identity_of
from kapsa.runtime.resources.kind import Kind, Manifest
from kapsa.runtime.resources.selector import LabelSelector, selector_text

__all__ = ["Client", "DeleteOptions", "PatchType", "Propagation", "WriteOptions"]

T = TypeVar("T")
Propagation = Literal["Foreground", "Background", "Orphan"]
"""The treatment of the objects that a deleted object owns."""
PatchType = Literal["merge", "json", "strategic"]
"""The format of a patch: JSON merge patch, JSON patch, or strategic merge patch."""
Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]] | bytes
"""A merge or strategic patch, a list of JSON patch operations, or either as JSON text."""

_WRITE = {"Accept": "application/json", "Content-Type": "application/json"}
_PATCH: dict[PatchType, dict[str, str]] = {
    "merge": {"Accept": "application/json", "Content-Type": "application/merge-patch+json"},
    "json": {"Accept": "application/json", "Content-Type": "application/json-patch+json"},
    "strategic": {"Accept": "application/json", "Content-Type": "application/strategic-merge-patch+json"},
}
# JSON is YAML, and the API server has accepted it under this name since the first version of server-side
# apply.
_APPLY = {"Accept": "application/json", "Content-Type": "application/apply-patch+yaml"}
# The API server rejects an apply with an unknown field whatever the validation. Under Warn and Strict it
# parses the body a second time to detect duplicate keys, which an encoded object never has.
_PARSED_ONCE = ("fieldValidation", "Ignore")


class WriteOptions(TypedDict, total=False):
    """Options for writing one object."""

    namespace: str
    """The namespace; by default that of the object, or else of the client."""
    subresource: str
    """`status`, `scale` or another."""
    field_manager: str
    """The manager that owns the fields; by default that of the client."""
    dry_run: bool
    """Process the request without storing the result."""
    field_validation: Literal["Ignore", "Warn", "Strict"]
    """The treatment of unknown fields. By default the server warns; in an apply it always rejects them."""


class DeleteOptions(TypedDict, total=False):
    """Options for deleting one object."""

    namespace: str
    propagation: Propagation
    """The treatment of the objects that this object owns; by default that of the server for its kind."""
    uid: str
    """Delete only the object with this uid, not a later one with the same name."""
    resource_version: str
    """Delete the object only if it has not changed since this version."""
    grace_seconds: int
    dry_run: bool


class Client(Reader):
    """A client that reads and writes objects of one cluster.

    After 429, 503, 504 and broken connections a request is retried where that is safe, within a budget and
    with respect for Retry-After: see `kapsa.runtime.client.retry`. `before_write` is called before each write
    and can stop it.
    """

    @classmethod
    def connect(
        cls,
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        field_manager: str = "kapsa",
        connections: int = 32,
        clock: Clock | None = None,
    ) -> Self:
        """Return a client for the first of: the kubeconfig that is passed, `KUBECONFIG`, the cluster of the
        pod that this process runs in, `~/.kube/config`."""
        config = load_config(kubeconfig=kubeconfig, context=context, clock=clock)
        transport = HttpTransport(config.access, connections=connections, user_agent=field_manager)
        return cls(
            transport,
            clock=clock,
            field_manager=field_manager,
            namespace=config.namespace,
            cluster=f"{config.access.server} ({config.origin})",
        )

    def derive(
        self,
        *,
        field_manager: str | None = None,
        before_write: WriteGate | None = None,
        on_unanswered: UnansweredWrite | None = None,
    ) -> "Client":
        """Return a client on the same connections, with another field manager and write gate.

        `on_unanswered` is called after each write that the server may still carry out although it did not answer.
        """
        other = Client.__new__(Client)
        other.__dict__.update(self.__dict__)
        other.field_manager = field_manager or self.field_manager
        other._dispatcher = self._dispatcher.gated(before_write, on_unanswered)  # noqa: SLF001 - of the same class
        return other

    async def create(self, body: T, **options: Unpack[WriteOptions]) -> T:
        """Create an object. Raises `AlreadyExists` if the name is taken.

        A create whose outcome is unknown (the connection broke, the server timed out) is not retried: the
        error is raised, and the next reconcile reads the actual state.
        """
        identity = identity_of(body)
        codec = await self._codec(identity.kind, identity.type)
        namespace = self._namespace(codec.resource, options.get("namespace") or identity.namespace)
        if codec.resource.namespaced and not namespace:
            raise ValueError(f"{codec.resource.kind} {identity.name!r} is namespaced: pass its namespace")
        response = await self._dispatcher.send(
            call_of("create", codec.resource, namespace, identity.name),
            "POST",
            codec.resource.collection_path(namespace),
            query=self._write_query(options),
            headers=_WRITE,
            body=encode(body),
            idempotent=False,
        )
        created: T = codec.decode(response.body)
        return created

    async def create_subresource(
        self, kind: Kind, name: str, subresource: str, body: Any, *, namespace: str = ""
    ) -> Manifest:
        """Create a subresource that is an action, such as `eviction`, `binding` or `token`."""
        codec = await self._codec(kind, dict)
        namespace = self._namespace(codec.resource, namespace)
        response = await self._dispatcher.send(
            call_of("create", codec.resource, namespace, name, subresource),
            "POST",
            codec.resource.object_path(name, namespace, subresource),
            query=self._write_query({}),
            headers=_WRITE,
            body=encode(body),
            idempotent=False,
        )
        result: Manifest = codec.decode(response.body)
        return result

    async def replace(self, body: T, **options: Unpack[WriteOptions]) -> T:
        """Replace the whole object.

        If its metadata has a resourceVersion, raises `Conflict` when the object has changed since.
        """
        identity = identity_of(body)
        codec = await self._codec(identity.kind, identity.type)
        namespace = self._namespace(codec.resource, options.get("namespace") or identity.namespace)
        subresource = options.get("subresource", "")
        response = await self._dispatcher.send(
            call_of("update", codec.resource, namespace, identity.name, subresource),
            "PUT",
            codec.resource.object_path(identity.name, namespace, subresource),
            query=self._write_query(options),
            headers=_WRITE,
            body=encode(body),
            idempotent=True,
        )
        replaced: T = codec.decode(response.body)
        return replaced

    @overload
    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Patch,
        *,
        into: type[T],
        type: PatchType = "merge",
        **options: Unpack[WriteOptions],
    ) -> T: ...
    @overload
    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        type: PatchType = "merge",
        **options: Unpack[WriteOptions],
    ) -> T: ...
    @overload
    async def patch(
        self,
        kind: str,
        name: str,
        patch: Patch,
        *,
        type: PatchType = "merge",
        **options: Unpack[WriteOptions],
    ) -> Manifest: ...
    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Patch,
        *,
        into: type[Any] | None = None,
        type: PatchType = "merge",  # noqa: A002 - kubectl's own word
        **options: Unpack[WriteOptions],
    ) -> Any:
        """Patch an object. A JSON patch is retried only if the server cannot have processed it."""
        codec = await self._codec(kind, into)
        namespace = self._namespace(codec.resource, options.get("namespace", ""))
        subresource = options.get("subresource", "")
        response = await self._dispatcher.send(
            call_of("patch", codec.resource, namespace, name, subresource),
            "PATCH",
            codec.resource.object_path(name, namespace, subresource),
            query=self._write_query(options),
            headers=_PATCH[type],
            body=encode(patch),
            idempotent=type != "json",
        )
        return codec.decode(response.body)

    @overload
    async def apply(
        self, body: Any, *, into: type[T], force: bool = False, **options: Unpack[WriteOptions]
    ) -> T: ...
    @overload
    async def apply(self, body: T, *, force: bool = False, **options: Unpack[WriteOptions]) -> T: ...
    async def apply(
        self,
        body: Any,
        *,
        into: type[Any] | None = None,
        force: bool = False,
        **options: Unpack[WriteOptions],
    ) -> Any:
        """Apply the fields of `body` by server-side apply; the field manager then owns these and no others.

        Raises `Conflict`, with the fields in `causes`, if another manager owns one of them; `force` takes
        them over.
        """
        identity = identity_of(body)
        codec = await self._codec(identity.kind, into or identity.type)
        namespace = self._namespace(codec.resource, options.get("namespace") or identity.namespace)
        subresource = options.get("subresource", "")
        query = self._write_query(options)
        if not options.get("field_validation"):
            query = (*query, _PARSED_ONCE)
        if force:
            query = (*query, ("force", "true"))
        response = await self._dispatcher.send(
            call_of("patch", codec.resource, namespace, identity.name, subresource),
            "PATCH",
            codec.resource.object_path(identity.name, namespace, subresource),
            query=query,
            headers=_APPLY,
            body=encode(body),
            idempotent=True,
        )
        return codec.decode(response.body)

    async def scale(self, kind: Kind, name: str, replicas: int, *, namespace: str = "") -> Manifest:
        """Set the replicas through the scale subresource, and return the `autoscaling/v1` Scale."""
        patch = {"spec": {"replicas": replicas}}
        scale: Manifest = await self.patch(
            kind, name, patch, into=dict, namespace=namespace, subresource="scale"
        )
        return scale

    async def delete(
        self, kind: Kind, name: str, *, missing_ok: bool = False, **options: Unpack[DeleteOptions]
    ) -> bool:
        """Delete an object; finalizers may delay its removal.

        Returns True if the server accepted the request; False, with `missing_ok`, if the object does not
        exist. Raises `Conflict` if the object does not have the given `uid` or `resource_version`.
        """
        try:
            await self.delete_object(kind, name, **options)
        except NotFound:
            if not missing_ok:
                raise
            return False
        return True

    async def delete_object(self, kind: Kind, name: str, **options: Unpack[DeleteOptions]) -> Manifest | None:
        """Delete an object; return it if finalizers or a grace period keep it for now, else None."""
        codec = await self._codec(kind, None)
        namespace = self._namespace(codec.resource, options.get("namespace", ""))
        response = await self._dispatcher.send(
            call_of("delete", codec.resource, namespace, name),
            "DELETE",
            codec.resource.object_path(name, namespace),
            headers=_WRITE,
            body=_delete_body(options),
            idempotent=True,
        )
        remainder: Manifest = codec.into(dict).decode(response.body)
        # For some kinds the response is the object as it was. It still exists only if it has a
        # deletionTimestamp.
        return remainder if (remainder.get("metadata") or {}).get("deletionTimestamp") else None

    async def delete_collection(
        self,
        kind: Kind,
        *,
        label_selector: LabelSelector = None,
        field_selector: str = "",
        **options: Unpack[DeleteOptions],
    ) -> None:
        """Delete all objects of a kind in one namespace that match the selectors."""
        codec = await self._codec(kind, None)
        namespace = self._namespace(codec.resource, options.get("namespace", ""))
        query = []
        if labels := selector_text(label_selector):
            query.append(("labelSelector", labels))
        if field_selector:
            query.append(("fieldSelector", field_selector))
        await self._dispatcher.send(
            call_of("deletecollection", codec.resource, namespace),
            "DELETE",
            codec.resource.collection_path(namespace),
            query=query,
            headers=_WRITE,
            body=_delete_body(options),
            idempotent=True,
        )

    def _write_query(self, options: WriteOptions) -> tuple[tuple[str, str], ...]:
        query: tuple[tuple[str, str], ...] = (
            ("fieldManager", options.get("field_manager") or self.field_manager),
        )
        if options.get("dry_run"):
            query = (*query, ("dryRun", "All"))
        if validation := options.get("field_validation"):
            query = (*query, ("fieldValidation", validation))
        return query


def _delete_body(options: DeleteOptions) -> bytes:
    body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation := options.get("propagation"):
        body["propagationPolicy"] = propagation
    if "grace_seconds" in options:
        body["gracePeriodSeconds"] = options["grace_seconds"]
    preconditions = {}
    if uid := options.get("uid"):
        preconditions["uid"] = uid
    if version := options.get("resource_version"):
        preconditions["resourceVersion"] = version
    if preconditions:
        body["preconditions"] = preconditions
    if options.get("dry_run"):
        body["dryRun"] = ["All"]
    return encode(body)
