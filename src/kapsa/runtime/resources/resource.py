"""Custom resources as Python classes.

    class MyApp(CustomResource[MyAppSpec, MyAppStatus], group="example.com", version="v1"):
        "An application served by a Deployment."

A resource is read-only. It keeps spec and status as the server sent them, and decodes each on first use.
Fields of a newer model are therefore never lost, because they are never rewritten, and a resource that is not
read costs nothing.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Never, Self, TypeVar

import msgspec

from kapsa.runtime.resources.attribute_names import reject_misspelt
from kapsa.runtime.resources.definition import (
    PrinterColumn,
    ResourceDefinition,
    Scale,
    Scope,
    pluralize,
)
from kapsa.runtime.resources.merge_patch import merge_patch
from kapsa.runtime.resources.metadata import GroupVersionKind, ObjectMeta, OwnerReference
from kapsa.runtime.resources.mismatch import mismatch
from kapsa.runtime.resources.model import (
    Rule,
    Spec,
    Status,
    decode_scalar,
    sealed,
    to_wire,
)

__all__ = ["CustomResource"]

SpecT = TypeVar("SpecT", bound=Spec)
StatusT = TypeVar("StatusT", bound=Status)


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_EMPTY: tuple[Any, ...] = ("", [], {})
_envelopes = msgspec.json.Decoder(_Envelope)
Content = bytes | msgspec.Raw | Mapping[str, Any]
"""A spec or status that is not decoded yet: JSON, or plain JSON types."""


class CustomResource(Generic[SpecT, StatusT]):
    """The base class of your own kinds. Subclass it with a spec, a status, a group and a version.

    Keyword arguments of the class: `group` and `version` make it concrete; `kind` defaults to the name of the
    class, `singular` to the kind in lower case, and `plural` to its English plural.
    """

    __slots__ = ("_raw_spec", "_raw_status", "_spec", "_status", "metadata")

    definition: ClassVar[ResourceDefinition]
    spec_type: ClassVar[type[Spec]]
    status_type: ClassVar[type[Status]]
    api_version: ClassVar[str]
    kind: ClassVar[str]
    gvk: ClassVar[GroupVersionKind]

    metadata: ObjectMeta
    _raw_spec: Content | None
    _raw_status: Content | None
    _spec: SpecT | None
    _status: StatusT | None

    def __init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        singular: str = "",
        short_names: Sequence[str] = (),
        categories: Sequence[str] = (),
        scope: Scope = "Namespaced",
        columns: Sequence[PrinterColumn] = (),
        rules: Sequence[Rule] = (),
        scale: Scale | None = None,
        selectable_fields: Sequence[str] = (),
        served: bool = True,
        storage: bool | None = None,
        hub: bool = False,
        deprecated: str = "",
    ) -> None:
        super().__init_subclass__()
        _check_body(cls)
        _resolve_types(cls)
        if not group and not version:
            return
        _check_declaration(cls, group, version)
        kind = kind or cls.__name__
        singular = singular or kind.lower()
        cls.definition = ResourceDefinition(
            group=group,
            version=version,
            kind=kind,
            plural=plural or pluralize(singular),
            singular=singular,
            scope=scope,
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=tuple(columns),
            rules=tuple(rules),
            scale=scale,
            selectable_fields=tuple(selectable_fields),
            served=served,
            storage=storage,
            hub=hub,
            deprecated=deprecated,
        )
        cls.gvk = cls.definition.gvk
        cls.api_version, cls.kind = cls.gvk.api_version, kind

    def __init__(self, *, metadata: ObjectMeta, spec: SpecT, status: StatusT | None = None) -> None:
        _fill(self, metadata, None, None if status else b"{}", spec, status)

    @classmethod
    def from_parts(
        cls, *, metadata: ObjectMeta, spec: Content | None = None, status: Content | None = None
    ) -> Self:
        """Return a resource with metadata and undecoded spec and status, as a cache stores them."""
        resource = cls.__new__(cls)
        _fill(resource, metadata, spec or b"{}", status or b"{}", None, None)
        return resource

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return a resource from JSON. Its spec and status are validated when they are first used."""
        try:
            envelope = _envelopes.decode(data)
        except msgspec.ValidationError as error:
            raise mismatch(cls.kind, "", error) from None
        return cls.from_parts(metadata=envelope.metadata, spec=envelope.spec, status=envelope.status)

    @classmethod
    def from_dict(cls, manifest: Mapping[str, Any]) -> Self:
        """Return a resource from plain JSON types.

        Its spec and status are validated when they are first used.
        """
        try:
            metadata = msgspec.convert(manifest.get("metadata") or {}, ObjectMeta)
        except msgspec.ValidationError as error:
            raise mismatch(cls.kind, "metadata", error) from None
        return cls.from_parts(metadata=metadata, spec=manifest.get("spec"), status=manifest.get("status"))

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace; empty for cluster-scoped resources."""
        return self.metadata.namespace

    @property
    def spec(self) -> SpecT:
        """The desired state."""
        if self._spec is None:
            self._put("_spec", self._decode("spec", self._raw_spec, self.spec_type))
            assert self._spec is not None
        return self._spec

    @property
    def status(self) -> StatusT:
        """The observed state that was last written; all defaults if there is none. Read-only."""
        if self._status is None:
            self._put("_status", self._decode("status", self._raw_status, sealed(self.status_type)))
            assert self._status is not None
        return self._status

    def draft_status(self) -> StatusT:
        """Return a mutable copy of the status, which shares nothing with this resource."""
        raw = to_wire(self._status) if self._raw_status is None else self._raw_status
        draft: StatusT = self._decode("status", raw, self.status_type)
        return draft

    def status_patch(self, draft: StatusT) -> dict[str, Any] | None:
        """Return the JSON merge patch from the status that was read to `draft`; None if they are equal.

        Fields that this model does not have are in neither, so a patch never changes them. Defaults of the model
        alone are not worth a write; with another change they are written too, for clients that read the status
        without the model.
        """
        before, after = to_wire(self.status), to_wire(draft)
        patch = merge_patch(before, after)
        if not patch:
            return None
        stored = before if self._raw_status is None else _plain(self._raw_status)
        unwritten = {name for name, value in after.items() if name not in stored and value not in _EMPTY}
        return merge_patch({name: before[name] for name in before.keys() - unwritten}, after)

    def owner_reference(self, *, controller: bool = True) -> OwnerReference:
        """Return the owner reference for an object that this resource owns."""
        return OwnerReference(
            api_version=self.api_version,
            kind=self.kind,
            name=self.metadata.name,
            uid=self.metadata.uid,
            controller=controller,
            block_owner_deletion=controller,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole resource as plain JSON types; parts that were read are unchanged."""
        manifest: dict[str, Any] = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": msgspec.to_builtins(self.metadata),
            "spec": to_wire(self._spec) if self._raw_spec is None else _plain(self._raw_spec),
        }
        status = to_wire(self._status) if self._raw_status is None else _plain(self._raw_status)
        if status:
            manifest["status"] = status
        return manifest

    def __setattr__(self, name: str, value: Any) -> Never:
        raise AttributeError(
            f"{self} is read-only: change the status through ctx.status, and anything else with a client"
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.metadata}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _decode(self, part: str, content: Content | None, kind: Any) -> Any:
        try:
            if isinstance(content, (bytes, msgspec.Raw)):
                return _decoder(kind).decode(content)
            return msgspec.convert(content, kind, dec_hook=decode_scalar)
        except msgspec.ValidationError as error:
            if isinstance(content, (bytes, msgspec.Raw)) and bytes(content).strip() == b"null":
                return self._decode(part, b"{}", kind)  # null means absent
            raise mismatch(str(self), part, error) from None


def _fill(
    resource: CustomResource[Any, Any],
    metadata: ObjectMeta,
    raw_spec: Content | None,
    raw_status: Content | None,
    spec: Spec | None,
    status: Status | None,
) -> None:
    put = object.__setattr__
    put(resource, "metadata", metadata)
    put(resource, "_raw_spec", raw_spec)
    put(resource, "_raw_status", raw_status)
    put(resource, "_spec", spec)
    put(resource, "_status", status)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=decode_scalar)


def _plain(content: Content) -> Any:
    return msgspec.json.decode(content) if isinstance(content, (bytes, msgspec.Raw)) else content


def _resolve_types(cls: type[CustomResource[Any, Any]]) -> None:
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin, arguments = typing.get_origin(base), typing.get_args(base)
        if isinstance(origin, type) and issubclass(origin, CustomResource) and len(arguments) == 2:
            spec, status = arguments
            if isinstance(spec, type):
                cls.spec_type = spec
            if isinstance(status, type):
                cls.status_type = status


_VERSION = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ARGUMENTS = frozenset(ResourceDefinition.__struct_fields__)


def _check_body(cls: type[CustomResource[Any, Any]]) -> None:
    """Raise TypeError for an argument of the class that is written in its body, where it would be ignored."""
    for name in vars(cls):
        if name in _ARGUMENTS:
            raise TypeError(
                f"{cls.__name__}.{name} would be ignored; "
                f"write it as an argument: class {cls.__name__}(..., {name}=...)"
            )
    reject_misspelt(cls, _ARGUMENTS)


def _check_declaration(cls: type[CustomResource[Any, Any]], group: str, version: str) -> None:
    if not group or not version:
        raise TypeError(f"{cls.__name__} needs both group and version, got {group!r} and {version!r}")
    if not _VERSION.fullmatch(version):
        raise TypeError(f"{cls.__name__}: version must be a name such as 'v1' or 'v1beta1', got {version!r}")
    if "." not in group:
        raise TypeError(f"{cls.__name__}: group must be a domain name such as 'example.com', got {group!r}")
    if not hasattr(cls, "spec_type") or not hasattr(cls, "status_type"):
        raise TypeError(f"{cls.__name__} must derive from CustomResource[YourSpec, YourStatus]")
    for kind in (cls.spec_type, cls.status_type):
        _check_fields(cls, kind)
    required = [info.name for info in msgspec.structs.fields(cls.status_type) if info.required]
    if required:
        raise TypeError(
            f"{cls.status_type.__name__}.{required[0]} needs a default: a new resource has no status yet"
        )


def _check_fields(cls: type[CustomResource[Any, Any]], kind: Any) -> None:
    """Raise TypeError now, not at the first resource, for a field whose type cannot be decoded."""
    try:
        _decoder(kind)
    except NameError:
        return  # it refers to a type that its module defines later
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}: {kind.__name__} cannot be decoded: {error}. "
            "Write a constraint directly at its type: Annotated[str, Field(max_length=9)] | None"
        ) from None
