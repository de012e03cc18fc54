"""From Python types to structural schemas."""

import enum
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pytest

from kapsa.runtime import Field, IntOrString, Part, Quantity, SchemaError, Spec, rule
from kapsa.runtime.generate.schema import openapi_schema

PRESERVE = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Entry(Part):
    """An entry."""

    name: str
    size: int = 1


class Loop(Part):
    inner: "Loop | None" = None


class Pair(Part):
    left: "list[Pairing]"


class Pairing(Part):
    right: Pair | None = None


Name = NewType("Name", str)


def schema(hint: Any) -> dict[str, Any]:
    return openapi_schema(hint, path="Thing.spec")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Name, {"type": "string"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (dict[str, Any], {"type": "object", PRESERVE: True}),
        (Any, {PRESERVE: True}),
        (msgspec.Raw, {PRESERVE: True}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (IntOrString, {"x-kubernetes-int-or-string": True}),
        (str | None, {"type": "string"}),
    ],
)
def test_a_type_has_its_schema(hint: Any, expected: dict[str, Any]) -> None:
    assert schema(hint) == expected


def test_a_quantity_is_a_number_or_a_string_of_its_pattern() -> None:
    made = schema(Quantity)
    assert made["x-kubernetes-int-or-string"] is True
    assert made["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert re.search(made["pattern"], "1.5Gi")
    assert not re.search(made["pattern"], "1GB")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (
            Annotated[float, Field(gt=0, lt=1)],
            {
                "type": "number",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1,
                "exclusiveMaximum": True,
            },
        ),
        (Annotated[int, Field(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (
            Annotated[str, Field(min_length=1, max_length=9, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a"},
        ),
        (
            Annotated[list[str], Field(min_length=1, max_length=9)],
            {"type": "array", "minItems": 1, "maxItems": 9, "items": {"type": "string"}},
        ),
        (
            Annotated[dict[str, str], Field(max_length=9)],
            {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "string"}},
        ),
        (Annotated[str, Field(enum=["a"])], {"type": "string", "enum": ["a"]}),
        (Annotated[str, Field(format="ipv4")], {"type": "string", "format": "ipv4"}),
        (Annotated[str, msgspec.Meta(title="T")], {"type": "string", "title": "T"}),
        (
            Annotated[list[str], Field(list_type="set")],
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        ),
        (
            Annotated[dict[str, str], Field(map_type="atomic")],
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "x-kubernetes-map-type": "atomic",
            },
        ),
        (
            Annotated[dict[str, Any], Field(embedded_resource=True)],
            {"type": "object", "x-kubernetes-embedded-resource": True, PRESERVE: True},
        ),
        (Annotated[int, Field(ge=1)] | None, {"type": "integer", "minimum": 1}),
    ],
)
def test_a_constraint_is_in_the_schema(hint: Any, expected: dict[str, Any]) -> None:
    assert schema(hint) == expected


def test_a_struct_is_an_object_with_descriptions_defaults_and_required_fields() -> None:
    class Server(Spec):
        """A server."""

        image: str
        """The image to run.

        A full reference.
        """
        open_ports: list[int] = msgspec.field(default_factory=list)
        payload: bytes = b""
        first: Entry = Entry(name="one")
        """The first entry."""
        second: Entry | None = None
        third: Annotated[str, Field(description="Said in the annotation.")] = "x"
        """Said below."""

    entry = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 1}},
        "required": ["name"],
    }
    assert schema(Server) == {
        "description": "A server.",
        "type": "object",
        "properties": {
            "image": {"description": "The image to run.\n\nA full reference.", "type": "string"},
            "openPorts": {"type": "array", "items": {"type": "integer"}},
            "payload": {"type": "string", "format": "byte"},
            "first": {"description": "The first entry.", "default": {"name": "one", "size": 1}, **entry},
            "second": {"description": "An entry.", **entry},
            "third": {"description": "Said in the annotation.", "type": "string", "default": "x"},
        },
        "required": ["image"],
    }


def test_a_status_schema_has_no_defaults() -> None:
    made = openapi_schema(Entry, path="Thing.status", defaults=False)
    assert made["properties"]["size"] == {"type": "integer"}


def test_optional_and_nullable_are_distinguished() -> None:
    class Optionals(Spec):
        optional: str | None = None
        nullable: str | None
        both: Annotated[str | None, Field(nullable=True)] = None
        unset: str | msgspec.UnsetType = msgspec.UNSET
        choice: Literal["a", "b"] | None

    made = schema(Optionals)
    assert made["properties"] == {
        "optional": {"type": "string"},
        "nullable": {"type": "string", "nullable": True},
        "both": {"type": "string", "nullable": True},
        "unset": {"type": "string"},
        "choice": {
            "type": "string",
            "nullable": True,
            RULES: [{"rule": 'self in ["a","b"]', "message": "must be null or one of a, b"}],
        },
    }
    assert made["required"] == ["nullable", "choice"]


def test_a_list_with_map_keys_is_a_keyed_list() -> None:
    made = schema(Annotated[list[Entry], Field(map_keys=["name"])])
    assert made["x-kubernetes-list-type"] == "map"
    assert made["x-kubernetes-list-map-keys"] == ["name"]


def test_rules_of_a_class_its_bases_and_its_fields_are_in_the_schema() -> None:
    class Base(Spec, rules=[rule("self.low >= 0", "low is not negative")]):
        low: int

    class Range(Base, rules=[rule("self.low <= self.high", field_path=".high", reason="FieldValueInvalid")]):
        high: Annotated[int, Field(rules=[rule("self < 10")])]

    made = schema(Range)
    assert made[RULES] == [
        {"rule": "self.low >= 0", "message": "low is not negative"},
        {"rule": "self.low <= self.high", "reason": "FieldValueInvalid", "fieldPath": ".high"},
    ]
    assert made["properties"]["high"][RULES] == [{"rule": "self < 10"}]


def test_an_immutable_field_can_be_set_once_and_not_removed() -> None:
    class Fixed(Spec):
        name: Annotated[str, Field(immutable=True)]
        namespace: Annotated[str | None, Field(immutable=True)] = None

    made = schema(Fixed)
    fixed = [{"rule": "self == oldSelf", "message": "cannot be changed once it is set"}]
    assert made["properties"]["name"][RULES] == fixed
    assert made["properties"]["namespace"][RULES] == fixed
    assert [each["rule"] for each in made[RULES]] == [
        "!has(oldSelf.__namespace__) || has(self.__namespace__)"
    ]


class Holder(Part):
    inner: Annotated[str, Field(immutable=True)]


@pytest.mark.parametrize(
    ("hint", "path", "problem"),
    [
        (Loop, "Thing.spec.inner", "Loop contains itself"),
        (Pair, "Thing.spec.left[].right", "Pair contains itself"),
        (int | float, "Thing.spec", "cannot express int | float"),
        (Entry | Holder, "Thing.spec", "exactly one is set"),
        (complex, "Thing.spec", "complex cannot be expressed"),
        (dict[int, str], "Thing.spec", "keys of a map must be str"),
        (tuple[int, str], "Thing.spec", "tuple of fixed length"),
        (list, "Thing.spec", "list needs an item type"),
        (Literal["a", 1], "Thing.spec", "must all be str or all be int"),
        (set[Entry], "Thing.spec", "a set can hold only strings"),
        (Annotated[str, Field(pattern="(?=a)")], "Thing.spec", "RE2"),
        (Annotated[str, Field(map_keys=["a"])], "Thing.spec", "apply only to a list"),
        (Annotated[list[Entry], Field(map_keys=["nam"])], "Thing.spec", "'nam' is not a field"),
        (Annotated[list[Holder], Field(list_type="map")], "Thing.spec", "needs map_keys"),
        (list[Holder], "Thing.spec[].inner", "give the list map_keys"),
    ],
)
def test_a_type_that_a_crd_cannot_express_is_rejected_with_its_path(
    hint: Any, path: str, problem: str
) -> None:
    with pytest.raises(SchemaError) as error:
        schema(hint)
    assert error.value.path == path
    assert problem in error.value.problem


def test_a_map_key_must_be_required_or_have_a_default() -> None:
    class Loose(Part):
        name: str | None = None

    with pytest.raises(SchemaError, match="must be required"):
        schema(Annotated[list[Loose], Field(map_keys=["name"])])


def test_a_default_outside_its_enum_is_rejected() -> None:
    class Wrong(Spec):
        mode: Annotated[str, Field(enum=["a", "b"])] = "c"

    with pytest.raises(SchemaError, match=r"Thing\.spec\.mode: the default 'c'"):
        schema(Wrong)


def test_a_class_without_source_has_no_field_descriptions() -> None:
    made: Any = msgspec.defstruct("Made", [("name", str)])
    assert schema(made)["properties"] == {"name": {"type": "string"}}
