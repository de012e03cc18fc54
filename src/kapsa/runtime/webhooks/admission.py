"""Admission webhooks: classes whose instances the API server calls before it writes an object.

class MyAppValidator(ValidatingWebhook[MyApp]):
    async def validate(self, request: AdmissionRequest[MyApp]) -> AdmissionResponse:
        if request.object.spec.replicas > 5:
            return deny("spec.replicas: at most 5 in this cluster")
        return allow()
"""

from __future__ import annotations

import base64
import copy
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.generate.rbac import GroupResource
from kapsa.runtime.resources.attribute_names import reject_misspelt
from kapsa.runtime.resources.kind import Kind, Manifest, decoder_for, kind_of
from kapsa.runtime.resources.merge_patch import merge_patch
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.model import Spec, to_wire
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.webhooks._json_patch import difference

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "MutatingWebhook",
    "Operation",
    "Review",
    "UserInfo",
    "ValidatingWebhook",
    "allow",
    "deny",
]

T = TypeVar("T")
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
"""An operation that an admission webhook can be called for."""


class UserInfo(msgspec.Struct, frozen=True):
    """The user who requested the write."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Wire(msgspec.Struct, frozen=True):
    """An AdmissionRequest as decoded from the wire."""

    uid: str
    operation: Operation
    name: str = ""
    namespace: str = ""
    subresource: str = msgspec.field(name="subResource", default="")
    user: UserInfo = msgspec.field(name="userInfo", default=UserInfo())
    object: Manifest | None = None
    old_object: Manifest | None = msgspec.field(name="oldObject", default=None)
    dry_run: bool = msgspec.field(name="dryRun", default=False)


class Review(msgspec.Struct, frozen=True):
    """An AdmissionReview with a request in it."""

    request: _Wire
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""


class AdmissionRequest(Generic[T]):
    """A requested write that the API server has not performed yet."""

    def __init__(self, wire: _Wire, type: type[Any], client: Client) -> None:  # noqa: A002 - it is a type
        self._wire = wire
        self.client: Client = client
        """A client for reading other objects. A webhook decides; it must not write."""
        self._decode = decoder_for(type)
        self.manifest: Manifest = copy.deepcopy(wire.object) if wire.object is not None else {}
        """The object as plain data.

        A mutating webhook changes it in place, and the patch is computed from the change.
        """

    @property
    def operation(self) -> Operation:
        """The requested operation."""
        return self._wire.operation

    @property
    def name(self) -> str:
        """The name of the object. Empty when the server generates it."""
        return self._wire.name

    @property
    def namespace(self) -> str:
        """The namespace of the object. Empty if it is cluster-scoped."""
        return self._wire.namespace

    @property
    def subresource(self) -> str:
        """The subresource, such as `status`. Empty for the object itself."""
        return self._wire.subresource

    @property
    def user(self) -> UserInfo:
        """The user who requested the write."""
        return self._wire.user

    @property
    def dry_run(self) -> bool:
        """True if nothing will be stored: there must be no side effects."""
        return self._wire.dry_run

    @property
    def object(self) -> T:
        """The object as it would be written. A DELETE has none: use `old_object`."""
        if self._wire.object is None:
            raise ValueError(f"a {self.operation} request has no object; use old_object")
        decoded: T = self._decode(msgspec.json.encode(self._wire.object))
        return decoded

    @property
    def old_object(self) -> T | None:
        """The stored object, for UPDATE and DELETE."""
        if self._wire.old_object is None:
            return None
        decoded: T = self._decode(msgspec.json.encode(self._wire.old_object))
        return decoded

    def change_spec(self, spec: Spec) -> None:
        """Write a changed spec to the manifest. Fields that the model does not have stay as they are."""
        resource = self.object
        if not isinstance(resource, CustomResource):
            raise TypeError("change_spec needs a CustomResource; change request.manifest instead")
        changes = merge_patch(to_wire(resource.spec), to_wire(spec))
        self.manifest["spec"] = _merge(self.manifest.get("spec") or {}, changes)

    @property
    def patch(self) -> list[dict[str, Any]]:
        """The changes to the manifest, as a JSON patch."""
        return difference(self._wire.object, self.manifest) if self._wire.object is not None else []


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a write. Created by `allow` and `deny`."""

    allowed: bool
    message: str = ""
    code: int = 403
    reason: str = ""
    warnings: tuple[str, ...] = ()


def allow(*, warnings: Sequence[str] = ()) -> AdmissionResponse:
    """Allow the write. kubectl and other clients show the warnings to their user."""
    return AdmissionResponse(allowed=True, warnings=tuple(warnings))


def deny(
    message: str, *, code: int = 403, reason: str = "", warnings: Sequence[str] = ()
) -> AdmissionResponse:
    """Reject the write. The message is for the user: name the problem and the remedy."""
    return AdmissionResponse(
        allowed=False, message=message, code=code, reason=reason, warnings=tuple(warnings)
    )


_OVERRIDABLE = ("name", "registration", "review", "validate", "mutate", "reinvocation_policy")
"""The names that a webhook may define besides the annotated attributes of `Webhook`."""


class Webhook(Generic[T]):
    """The base of validating and mutating webhooks: the requests it is called for, and its registration."""

    verb: ClassVar[Literal["validate", "mutate"]]
    resource: ClassVar[Kind]
    """The kind. Taken from the class in brackets. Set it for kinds without a class, such as `"v1/Pod"`."""
    operations: ClassVar[Sequence[Operation]] = ("CREATE", "UPDATE")
    subresources: ClassVar[Sequence[str]] = ("",)
    """The subresources it is called for: `""` is the object itself, `"status"` its status."""
    path: str = ""
    """The path it is served at; `/validate-example-com-v1-myapp` by default."""
    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Fail"
    """The fate of writes while the webhook does not respond."""
    timeout_seconds: ClassVar[int] = 10
    """Seconds that the API server waits, from 1 to 30. The webhook times out half a second earlier, so that
    the user gets a reason."""
    match_policy: ClassVar[Literal["Equivalent", "Exact"]] = "Equivalent"
    side_effects: ClassVar[Literal["None", "NoneOnDryRun"]] = "None"
    namespace_selector: ClassVar[Mapping[str, Any] | None] = None
    object_selector: ClassVar[Mapping[str, Any] | None] = None
    match_conditions: ClassVar[Mapping[str, str]] = {}
    """CEL expressions by name. The webhook is called if all are true."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        reject_misspelt(cls, (*Webhook.__annotations__, *_OVERRIDABLE))
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin, arguments = typing.get_origin(base), typing.get_args(base)
            if not (isinstance(origin, type) and issubclass(origin, Webhook)):
                continue
            if isinstance(arguments[0], type) and arguments[0] is not Any:
                cls.resource = arguments[0]

    def __init__(self) -> None:
        if not hasattr(self, "resource"):
            raise TypeError(
                f"{type(self).__name__} has no kind: subclass {type(self).__mro__[1].__name__}[MyResource], "
                "or set resource = 'v1/Pod'"
            )
        if not 1 <= self.timeout_seconds <= 30:
            raise ValueError(
                f"{type(self).__name__}: timeout_seconds must be between 1 and 30, got {self.timeout_seconds}"
            )
        self.gvk: GroupVersionKind = kind_of(self.resource)
        if not self.path:
            self.path = self._usual_path()

    def _usual_path(self) -> str:
        group = (self.gvk.group or "core").replace(".", "-")
        return f"/{self.verb}-{group}-{self.gvk.version}-{self.gvk.kind.lower()}"

    @property
    def name(self) -> str:
        """The name in the webhook configuration and the metrics: a domain name of at least three labels.

        A custom path leads to a custom name, since a kind may have several webhooks.
        """
        slug = re.sub(r"[^a-z0-9]+", "-", self.path.lower()).strip("-")
        label = f"{self.verb}-{self.gvk.kind.lower()}" if self.path == self._usual_path() else slug
        return f"{label}.{self.gvk.group or 'core.kubernetes'}"

    def registration(self, client_config: Mapping[str, Any]) -> Manifest:
        """Return the entry of this webhook in the webhook configuration."""
        custom = isinstance(self.resource, type) and issubclass(self.resource, CustomResource)
        plural = GroupResource.of(self.resource if custom else self.gvk).resource
        entry: Manifest = {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": dict(client_config),
            "failurePolicy": self.failure_policy,
            "matchPolicy": self.match_policy,
            "sideEffects": self.side_effects,
            "timeoutSeconds": self.timeout_seconds,
            "namespaceSelector": dict(self.namespace_selector or {}),
            "objectSelector": dict(self.object_selector or {}),
            "rules": [
                {
                    "apiGroups": [self.gvk.group],
                    "apiVersions": [self.gvk.version],
                    "operations": list(self.operations),
                    "resources": [f"{plural}/{sub}" if sub else plural for sub in self.subresources],
                    "scope": "*",
                }
            ],
        }
        if self.match_conditions:
            entry["matchConditions"] = [
                {"name": name, "expression": expression} for name, expression in self.match_conditions.items()
            ]
        return entry

    async def review(self, review: Review, client: Client) -> tuple[AdmissionResponse, Manifest]:
        """Decide on a review. Return the response and the AdmissionReview that carries it."""
        type_ = self.resource if isinstance(self.resource, type) else dict
        request: AdmissionRequest[T] = AdmissionRequest(review.request, type_, client)
        response = await self._decide(request)
        return response, review_response(
            review.request.uid, response, request.patch if response.allowed else []
        )

    async def _decide(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        raise NotImplementedError


class ValidatingWebhook(Webhook[T]):
    """A webhook that decides whether an object may be written. Subclass it and define `validate`."""

    verb = "validate"

    async def validate(self, request: AdmissionRequest[T], /) -> AdmissionResponse:
        """Return `allow()` or `deny("reason and remedy")`.

        An exception also denies, and is counted as a failure.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define validate")

    async def _decide(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        response = await self.validate(request)
        if request.patch:
            raise TypeError(f"{type(self).__name__} changed the object; use a MutatingWebhook for that")
        return _checked(self, response)


class MutatingWebhook(Webhook[T]):
    """A webhook that changes an object before it is written. Subclass it and define `mutate`."""

    verb = "mutate"
    reinvocation_policy: ClassVar[Literal["Never", "IfNeeded"]] = "Never"
    """`IfNeeded` to be called again if a later webhook changed the object."""

    async def mutate(self, request: AdmissionRequest[T], /) -> AdmissionResponse:
        """Change `request.manifest` in place, or call `request.change_spec`.

        Return `allow()` or `deny(...)`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define mutate")

    def registration(self, client_config: Mapping[str, Any]) -> Manifest:
        """Return the entry of this webhook in the webhook configuration."""
        return {**super().registration(client_config), "reinvocationPolicy": self.reinvocation_policy}

    async def _decide(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        return _checked(self, await self.mutate(request))


def review_response(uid: str, response: AdmissionResponse, patch: list[dict[str, Any]]) -> Manifest:
    """Return the AdmissionReview that carries a response."""
    body: Manifest = {"uid": uid, "allowed": response.allowed}
    if not response.allowed:
        body["status"] = {
            "status": "Failure",
            "message": response.message,
            "reason": response.reason or ("Forbidden" if response.code == 403 else ""),
            "code": response.code,
        }
    if response.warnings:
        body["warnings"] = list(response.warnings)
    if patch:
        body["patchType"] = "JSONPatch"
        body["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": body}


def _checked(webhook: Webhook[Any], response: Any) -> AdmissionResponse:
    if not isinstance(response, AdmissionResponse):
        raise TypeError(
            f"{type(webhook).__name__}.{webhook.verb} returned {type(response).__name__}; "
            "return allow() or deny(...)"
        )
    return response


def _merge(document: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386)."""
    merged: dict[str, Any] = dict(document) if isinstance(document, dict) else {}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value) if isinstance(value, dict) else value
    return merged
