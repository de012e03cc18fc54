"""The base types of a resource: Spec, Status and the parts nested in them.

They are msgspec structs with camelCase wire names. `Spec` and `Part` are frozen. `Status` is mutable, because
a reconcile fills in a draft of the status; the status of a resource that was read is an instance of a sealed
subclass, which rejects changes.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar, dataclass_transform, runtime_checkable

import msgspec
from msgspec import field

from kapsa.runtime.resources.conditions import Condition, ConditionStatus, condition_status, with_condition

__all__ = [
    "Field",
    "FieldOptions",
    "Part",
    "Rule",
    "Scalar",
    "Spec",
    "Status",
    "decode_scalar",
    "encode_extension",
    "encode_json",
    "field_options",
    "rule",
    "sealed",
    "to_wire",
    "wire_name",
]

ListType = Literal["atomic", "set", "map"]
MapType = Literal["granular", "atomic"]
S = TypeVar("S", bound="Status")


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A CEL validation that the API server runs on each write."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False


def rule(
    expression: str,
    message: str = "",
    *,
    message_expression: str = "",
    reason: Literal[
        "", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"
    ] = "",
    field_path: str = "",
    optional_old_self: bool = False,
) -> Rule:
    """Return a CEL rule over `self` (and `oldSelf` on updates), for the `rules` of a class or a field."""
    return Rule(
        rule=expression,
        message=message,
        message_expression=message_expression,
        reason=reason,
        field_path=field_path,
        optional_old_self=optional_old_self,
    )


class FieldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The constraints of `Field` that msgspec itself does not check."""

    enum: tuple[Any, ...] = ()
    format: str = ""
    list_type: ListType | None = None
    map_keys: tuple[str, ...] = ()
    map_type: MapType | None = None
    immutable: bool = False
    nullable: bool = False
    int_or_string: bool = False
    preserve_unknown: bool = False
    embedded_resource: bool = False
    rules: tuple[Rule, ...] = ()


_OPTIONS = "kapsa"


def Field(  # noqa: N802 - reads as the annotation it is: Annotated[int, Field(ge=1)]
    *,
    description: str | None = None,
    title: str | None = None,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    multiple_of: float | None = None,
    pattern: str | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    examples: Sequence[Any] | None = None,
    enum: Sequence[Any] = (),
    format: str = "",  # noqa: A002 - OpenAPI's own name
    list_type: ListType | None = None,
    map_keys: Sequence[str] = (),
    map_type: MapType | None = None,
    immutable: bool = False,
    nullable: bool = False,
    int_or_string: bool = False,
    preserve_unknown: bool = False,
    embedded_resource: bool = False,
    rules: Sequence[Rule] = (),
) -> msgspec.Meta:
    """Return constraints for a field, as in `Annotated[int, Field(ge=1, le=100)]`.

    The API server enforces all of them through the generated CRD; those on numbers, lengths and patterns are
    checked again when a resource is decoded. Lengths apply to strings, lists and maps alike. A field that is
    `immutable` can be set once; `nullable` keeps an explicit null, while `x: T | None = None` alone means
    "may be absent"; `list_type="map"` with `map_keys` lets several writers share a list.
    """
    options = FieldOptions(
        enum=tuple(enum),
        format=format,
        list_type="map" if map_keys else list_type,
        map_keys=tuple(map_keys),
        map_type=map_type,
        immutable=immutable,
        nullable=nullable,
        int_or_string=int_or_string,
        preserve_unknown=preserve_unknown,
        embedded_resource=embedded_resource,
        rules=tuple(rules),
    )
    constraints: dict[str, Any] = {
        "description": description,
        "title": title,
        "gt": gt,
        "ge": ge,
        "lt": lt,
        "le": le,
        "multiple_of": multiple_of,
        "pattern": pattern,
        "min_length": min_length,
        "max_length": max_length,
        "examples": list(examples) if examples is not None else None,
    }
    return msgspec.Meta(**constraints, extra={_OPTIONS: options})


def field_options(meta: msgspec.Meta) -> FieldOptions | None:
    """Return the options that `Field` put into `meta`, if `Field` created it."""
    options = (meta.extra or {}).get(_OPTIONS)
    return options if isinstance(options, FieldOptions) else None


@runtime_checkable
class Scalar(Protocol):
    """A type that is a single value on the wire, such as Quantity. Any class may implement it."""

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Parse the value. Raises ValueError if it is invalid."""

    def to_wire(self) -> Any:
        """Return the value as JSON represents it."""

    @classmethod
    def openapi(cls) -> dict[str, Any]:
        """Return the structural schema of the value."""


def decode_scalar(kind: type, value: Any) -> Any:
    """Decode `Scalar` types, as a hook for msgspec."""
    if issubclass(kind, Scalar):
        return kind.from_wire(value)
    raise NotImplementedError(
        f"{kind.__qualname__} cannot be the type of a field; implement kapsa.runtime.resources.model.Scalar"
    )


def wire_name(name: str) -> str:
    """Return the wire name of a field: `readyReplicas` for `ready_replicas`, `from` for `from_`.

    Any other wire name is set with `msgspec.field(name="clusterIP")`.
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _reject_untyped(name: str, namespace: dict[str, Any]) -> None:
    """Raise TypeError for `replicas = 1` in the body of a model, which silently would not be a field."""
    typed = namespace.get("__annotations__")
    if typed is None and "__annotate_func__" in namespace:
        return  # Python 3.14 evaluates annotations lazily, and here it would be too early
    for attribute, value in namespace.items():
        if attribute.startswith("_") or attribute in (typed or ()) or hasattr(type(value), "__get__"):
            continue
        if not isinstance(value, type):
            kind = type(value).__name__
            raise TypeError(
                f"{name}.{attribute} has no type, so it would not be a field; write {attribute}: {kind} = ..."
            )


class _ModelMeta(msgspec.StructMeta):
    """A metaclass that accepts `rules`, and makes fields keyword-only: required ones may come last."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        rules: Sequence[Rule] = (),
        **config: Any,
    ) -> Any:
        config.setdefault("kw_only", True)
        _reject_untyped(name, namespace)
        namespace["__rules__"] = tuple(rules)
        return super().__new__(mcls, name, bases, namespace, **config)

    def __init__(
        cls,  # noqa: N805 - a metaclass's instances are classes
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        rules: Sequence[Rule] = (),
        **config: Any,
    ) -> None:
        super().__init__(name, bases, namespace)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Part(msgspec.Struct, metaclass=_ModelMeta, frozen=True, rename=wire_name):
    """An object nested in a spec or a status."""

    __rules__: typing.ClassVar[tuple[Rule, ...]]


class Spec(Part):
    """The desired state. Subclass it with the fields of your resource."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Status(msgspec.Struct, metaclass=_ModelMeta, rename=wire_name):
    """The observed state. Subclass it with more fields; each needs a default.

    The status of a resource that was read is sealed; `ctx.status` is a mutable draft of it.
    """

    __rules__: typing.ClassVar[tuple[Rule, ...]]

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that this status describes."""
    conditions: Annotated[list[Condition], Field(map_keys=["type"])] = field(default_factory=list)
    """The state of the resource, one aspect each."""

    def condition(self, type: str) -> Condition | None:  # noqa: A002 - the condition's own name
        """Return the condition of this type, if it is set."""
        return next((each for each in self.conditions if each.type == type), None)

    def is_true(self, type: str) -> bool:  # noqa: A002 - the condition's own name
        """Return whether the condition of this type is True."""
        condition = self.condition(type)
        return condition is not None and condition.status == "True"

    def set_condition(
        self,
        type: str,  # noqa: A002 - the condition's own name
        status: bool | ConditionStatus | None,
        *,
        reason: str,
        message: str = "",
        now: datetime,
        observed_generation: int | None = None,
    ) -> None:
        """Set a condition; its transition time becomes `now` only if its status changes."""
        self.conditions = with_condition(
            self.conditions,
            Condition(
                type=type,
                status=condition_status(status),
                reason=reason,
                message=message,
                last_transition_time=now.replace(microsecond=0),
                observed_generation=observed_generation,
            ),
        )


@functools.cache
def sealed(status: type[S]) -> type[S]:
    """Return the subclass of a status class whose instances reject changes."""
    namespace = {
        "__module__": status.__module__,
        "__qualname__": status.__qualname__,
        "__doc__": status.__doc__,
    }
    seal: Any = _ModelMeta
    made: type[S] = seal(status.__name__, (status,), namespace, frozen=True, rules=status.__rules__)
    return made


_PLAIN = frozenset({str, int, float, bool, types.NoneType})


def to_wire(value: Any) -> Any:
    """Return `value` as plain JSON types, without fields that are None because they are absent."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, msgspec.Struct):
        return _struct_to_wire(value)
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_wire(item) for item in value]
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if hasattr(value, "to_wire"):
        return value.to_wire()
    return msgspec.to_builtins(value)


def encode_extension(value: Any) -> Any:
    """Return the plain JSON form of a type of ours, such as a Quantity in a manifest: a hook for msgspec's encoders."""
    if hasattr(value, "to_wire"):
        return value.to_wire()
    raise NotImplementedError(f"objects of type {type(value).__name__} cannot be sent to the API server")


encode_json = msgspec.json.Encoder(enc_hook=encode_extension).encode
"""Encodes a manifest, whose values may be types of ours."""


def _struct_to_wire(value: msgspec.Struct) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    for name, encoded, omit_none in _wire_plan(type(value)):
        item = getattr(value, name)
        if (item is None and omit_none) or item is msgspec.UNSET:
            continue
        wire[encoded] = item if type(item) in _PLAIN else to_wire(item)
    return wire


@functools.cache
def _wire_plan(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Return attribute, wire name and whether None means absent, for each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        (info.name, info.encode_name, info.default is None and not _is_nullable(hints[info.name]))
        for info in msgspec.structs.fields(kind)
    )


def _is_nullable(hint: Any) -> bool:
    return any(
        (options := field_options(meta)) is not None and options.nullable
        for meta in getattr(hint, "__metadata__", ())
        if isinstance(meta, msgspec.Meta)
    )
