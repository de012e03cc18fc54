"""Admission webhooks: a class each, called by the API server before an object is written.

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
    """Who asks for the write."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Wire(msgspec.Struct, frozen=True):
    """An AdmissionRequest as it comes."""

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
    """A write that somebody asks for, and that is not done yet."""

    def __init__(self, wire: _Wire, type: type[Any], client: Client) -> None:  # noqa: A002 - a type is what it is
        self._wire = wire
        self.client: Client = client
        """For a look at what else is in the cluster. A webhook only decides: it writes nothing."""
        self._decode = decoder_for(type)
        self.manifest: Manifest = copy.deepcopy(wire.object) if wire.object is not None else {}
        """The object as plain data. A mutating webhook changes it in place; the patch is made from the change."""

    @property
    def operation(self) -> Operation:
        return self._wire.operation

    @property
    def name(self) -> str:
        """Empty when the server makes the name."""
        return self._wire.name

    @property
    def namespace(self) -> str:
        return self._wire.namespace

    @property
    def subresource(self) -> str:
        return self._wire.subresource

    @property
    def user(self) -> UserInfo:
        """Who asks."""
        return self._wire.user

    @property
    def dry_run(self) -> bool:
        """Nothing will be kept: have no side effects."""
        return self._wire.dry_run

    @property
    def object(self) -> T:
        """The object as it would be written. A DELETE has none: ask `old_object`."""
        if self._wire.object is None:
            raise ValueError(f"a {self.operation} carries no object; look at old_object")
        decoded: T = self._decode(msgspec.json.encode(self._wire.object))
        return decoded

    @property
    def old_object(self) -> T | None:
        """The object as it is, for UPDATE and DELETE."""
        if self._wire.old_object is None:
            return None
        decoded: T = self._decode(msgspec.json.encode(self._wire.old_object))
        return decoded

    def change_spec(self, spec: Spec) -> None:
        """Put a changed spec into the manifest. What the model does not know stays as it is."""
        resource = self.object
        if not isinstance(resource, CustomResource):
            raise TypeError("change_spec needs a CustomResource; change request.manifest instead")
        changes = merge_patch(to_wire(resource.spec), to_wire(spec))
        self.manifest["spec"] = _merge(self.manifest.get("spec") or {}, changes)

    @property
    def patch(self) -> list[dict[str, Any]]:
        """What was changed, as a JSON patch."""
        return difference(self._wire.object, self.manifest) if self._wire.object is not None else []


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the write. Made by `allow` and `deny`."""

    allowed: bool
    message: str = ""
    code: int = 403
    reason: str = ""
    warnings: tuple[str, ...] = ()


def allow(*, warnings: Sequence[str] = ()) -> AdmissionResponse:
    """Let it pass; each warning is shown to whoever asked, as kubectl does."""
    return AdmissionResponse(allowed=True, warnings=tuple(warnings))


def deny(
    message: str, *, code: int = 403, reason: str = "", warnings: Sequence[str] = ()
) -> AdmissionResponse:
    """Refuse it. The message is for the person who asked: say what is wrong and what would be right."""
    return AdmissionResponse(
        allowed=False, message=message, code=code, reason=reason, warnings=tuple(warnings)
    )


class Webhook(Generic[T]):
    """What validating and mutating webhooks have in common: what they are called for, and how."""

    verb: ClassVar[Literal["validate", "mutate"]]
    resource: ClassVar[Kind]
    """The kind. Taken from the class in brackets; set it for kinds without a class, such as `"v1/Pod"`."""
    operations: ClassVar[Sequence[Operation]] = ("CREATE", "UPDATE")
    subresources: ClassVar[Sequence[str]] = ("",)
    """`""` is the object itself; `"status"` the status."""
    path: str = ""
    """Where it is served; `/validate-example-com-v1-myapp` unless set."""
    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Fail"
    """What happens to writes while nobody answers."""
    timeout_seconds: ClassVar[int] = 10
    """How long the API server waits, from 1 to 30. Given up half a second earlier: so whoever asked is told why."""
    match_policy: ClassVar[Literal["Equivalent", "Exact"]] = "Equivalent"
    side_effects: ClassVar[Literal["None", "NoneOnDryRun"]] = "None"
    namespace_selector: ClassVar[Mapping[str, Any] | None] = None
    object_selector: ClassVar[Mapping[str, Any] | None] = None
    match_conditions: ClassVar[Mapping[str, str]] = {}
    """CEL expressions by name; the webhook is called when all are true."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        reject_misspelt(cls, (*Webhook.__annotations__, "name", "validate", "mutate"))
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin, arguments = typing.get_origin(base), typing.get_args(base)
            if not (isinstance(origin, type) and issubclass(origin, Webhook)):
                continue
            if isinstance(arguments[0], type) and arguments[0] is not Any:
                cls.resource = arguments[0]

    def __init__(self) -> None:
        if not hasattr(self, "resource"):
            raise TypeError(
                f"{type(self).__name__} says no kind: subclass {type(self).__mro__[1].__name__}[MyResource], "
                "or set resource = 'v1/Pod'"
            )
        if not 1 <= self.timeout_seconds <= 30:
            raise ValueError(f"{type(self).__name__}: timeout_seconds must be from 1 to 30")
        self.gvk: GroupVersionKind = kind_of(self.resource)
        if not self.path:
            self.path = self._usual_path()

    def _usual_path(self) -> str:
        group = (self.gvk.group or "core").replace(".", "-")
        return f"/{self.verb}-{group}-{self.gvk.version}-{self.gvk.kind.lower()}"

    @property
    def name(self) -> str:
        """How the API server and the metrics call it: at least three labels of a domain name.

        A path of its own gives it a name of its own, since a kind may have several.
        """
        slug = re.sub(r"[^a-z0-9]+", "-", self.path.lower()).strip("-")
        label = f"{self.verb}-{self.gvk.kind.lower()}" if self.path == self._usual_path() else slug
        return f"{label}.{self.gvk.group or 'core.kubernetes'}"

    def registration(self, client_config: Mapping[str, Any]) -> Manifest:
        """Its entry in the webhook configuration."""
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
        """The answer, and the AdmissionReview that carries it."""
        type_ = self.resource if isinstance(self.resource, type) else dict
        request: AdmissionRequest[T] = AdmissionRequest(review.request, type_, client)
        response = await self._answer(request)
        return response, answer(review.request.uid, response, request.patch if response.allowed else [])

    async def _answer(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        raise NotImplementedError


class ValidatingWebhook(Webhook[T]):
    """Decides whether an object may be written. Subclass it with the resource's class and `validate`."""

    verb = "validate"

    async def validate(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        """`allow()` or `deny("why, and what to do")`. An exception denies, too, and is counted as a failure."""
        raise NotImplementedError(f"{type(self).__name__} defines no validate")

    async def _answer(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        response = await self.validate(request)
        if request.patch:
            raise TypeError(f"{type(self).__name__} changed the object: only a MutatingWebhook may")
        return _checked(self, response)


class MutatingWebhook(Webhook[T]):
    """Changes an object before it is written. Subclass it with the resource's class and `mutate`."""

    verb = "mutate"
    reinvocation_policy: ClassVar[Literal["Never", "IfNeeded"]] = "Never"
    """Whether to be called again when a later webhook changed the object."""

    async def mutate(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        """Change `request.manifest` in place, or call `request.change_spec`; return `allow()` or `deny(...)`."""
        raise NotImplementedError(f"{type(self).__name__} defines no mutate")

    def registration(self, client_config: Mapping[str, Any]) -> Manifest:
        return {**super().registration(client_config), "reinvocationPolicy": self.reinvocation_policy}

    async def _answer(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        return _checked(self, await self.mutate(request))


def answer(uid: str, response: AdmissionResponse, patch: list[dict[str, Any]]) -> Manifest:
    """The AdmissionReview that carries a response."""
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
    """RFC 7386."""
    merged: dict[str, Any] = dict(document) if isinstance(document, dict) else {}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value) if isinstance(value, dict) else value
    return merged
