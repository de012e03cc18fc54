"""Types for the CEL checker: a schema as protocol buffer messages, so that wrong fields are rejected.

Only the checker uses them. Values are evaluated as plain JSON, without conversion to messages.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from kapsa.schemas.cel.expressions import CelCompileError, Checker
from kapsa.schemas.cel.rules import HAS_OLD, OLD, with_optional_old_self
from kapsa.schemas.cel.values import escape
from kapsa.schemas.schema import Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

__all__ = ["TypedSchema"]

_PACKAGE = "schema"
_DYN, _TIMESTAMP, _DURATION = (
    ".google.protobuf.Value",
    ".google.protobuf.Timestamp",
    ".google.protobuf.Duration",
)
_FORMATS = {"date-time": _TIMESTAMP, "date": _TIMESTAMP, "duration": _DURATION}
_WELL_KNOWN = {_DYN: "dyn", _TIMESTAMP: "timestamp", _DURATION: "duration"}
_SCALARS = {"integer": ("int", 3), "number": ("double", 1), "boolean": ("bool", 8), "string": ("string", 9)}
_BYTES = ("bytes", 12)
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_NAMED = ("name", "generateName")


class TypedSchema:
    """The types of one version of a custom resource, for checking the expressions of its nodes."""

    def __init__(self, root: Schema) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool

        self._file: FileDescriptorProto = descriptor_pb2.FileDescriptorProto(
            name="schema.proto", package=_PACKAGE, syntax="proto2"
        )
        self._names: dict[int, str] = {}
        self._nodes: list[Schema] = []
        self._checkers: dict[tuple[tuple[str, str], ...], Checker] = {}
        self._file.dependency.extend(file.name for file in _well_known())
        self._message(root, resource=True)
        self._pool = descriptor_pool.DescriptorPool()
        for file in (*_well_known(), self._file):
            self._pool.AddSerializedFile(file.SerializeToString())

    def check(self, schema: Schema, expression: str, *, optional_old_self: bool = False) -> str:
        """Return the type of an expression over a node's `self`: bool, string, dyn and so on.

        Raises CelCompileError, with the position and the reason, if the expression is invalid.
        """
        type_ = self._type_of(schema)
        if not optional_old_self:
            return self._checker(("self", type_), ("oldSelf", type_)).check(expression)
        checker = self._checker(("self", type_), (OLD, type_), (HAS_OLD, "bool"))
        try:
            return checker.check(with_optional_old_self(expression))
        except CelCompileError as error:
            # The expression starts on the second line of the compiled text.
            lines = re.sub(r"(?<=<input>:)(\d+)", lambda match: str(int(match[1]) - 1), str(error))
            raise CelCompileError(lines) from None

    def _checker(self, *variables: tuple[str, str]) -> Checker:
        checker = self._checkers.get(variables)
        if checker is None:
            checker = self._checkers[variables] = Checker(dict(variables), self._pool)
        return checker

    def _type_of(self, schema: Schema) -> str:
        """Return the CEL type of a node, dyn for a node that is not part of the resource's types."""
        if schema.int_or_string:
            return "dyn"
        if schema.type == "array" and schema.items is not None:
            return f"list<{self._type_of(schema.items)}>"
        if schema.type == "object" and schema.additional is not None and not schema.properties:
            return f"map<string, {self._type_of(schema.additional)}>"
        if schema.type == "object":
            name = self._names.get(id(schema))
            return "dyn" if name is None else f"{_PACKAGE}.{name}"
        if schema.type == "string" and schema.format in _FORMATS:
            return _WELL_KNOWN[_FORMATS[schema.format]]
        if schema.type == "string" and schema.format == "byte":
            return "bytes"
        return _SCALARS[schema.type][0] if schema.type in _SCALARS else "dyn"

    def _message(self, schema: Schema, *, resource: bool = False) -> str:
        name = self._names.get(id(schema))
        if name is not None:
            return name
        name = self._names[id(schema)] = f"Object{len(self._names)}"
        self._nodes.append(schema)  # keeps the node, and so its id, alive
        message = self._file.message_type.add(name=name)
        for key, child in schema.properties.items():
            if (resource or schema.embedded_resource) and key == "metadata":
                child = Schema(
                    type="object",
                    properties={part: child.properties[part] for part in _NAMED if part in child.properties},
                )
            self._field(message, escape(key), child)
        return name

    def _field(self, message: DescriptorProto, name: str, schema: Schema) -> None:
        if not name.isidentifier() or not name.isascii() or not _is_typed(schema):
            return
        number = len(message.field) + 1
        label, value = _OPTIONAL, schema
        if schema.type == "array" and schema.items is not None:
            label, value = _REPEATED, schema.items
        elif schema.type == "object" and schema.additional is not None and not schema.properties:
            self._map_field(message, name, schema.additional, number)
            return
        kind, type_name = self._kind(value)
        _add_field(message, name, number, label, kind, type_name)

    def _map_field(self, message: DescriptorProto, name: str, value: Schema, number: int) -> None:
        # The pool accepts a map's entry under this name only, so of two maps that share it the second one is dyn.
        entry = f"{''.join(part[:1].upper() + part[1:] for part in name.split('_'))}Entry"
        if any(nested.name == entry for nested in message.nested_type):
            _add_field(message, name, number, _OPTIONAL, _MESSAGE, _DYN)
            return
        nested = message.nested_type.add(name=entry)
        nested.options.map_entry = True
        nested.field.add(name="key", number=1, label=_OPTIONAL, type=_SCALARS["string"][1])
        kind, type_name = self._kind(value)
        nested.field.add(name="value", number=2, label=_OPTIONAL, type=kind, type_name=type_name)
        _add_field(message, name, number, _REPEATED, _MESSAGE, f".{_PACKAGE}.{message.name}.{entry}")

    def _kind(self, schema: Schema) -> tuple[Any, str | None]:
        """Return the wire type and message name of a value; what a message cannot hold is dyn."""
        if schema.type == "object" and (schema.additional is None or schema.properties):
            return _MESSAGE, f".{_PACKAGE}.{self._message(schema)}"
        if schema.type == "string" and schema.format in _FORMATS:
            return _MESSAGE, _FORMATS[schema.format]
        if schema.type == "string" and schema.format == "byte":
            return _BYTES[1], None
        if schema.type in _SCALARS and not schema.int_or_string:
            return _SCALARS[schema.type][1], None
        return _MESSAGE, _DYN


def _add_field(
    message: DescriptorProto, name: str, number: int, label: Any, kind: Any, type_name: str | None
) -> None:
    # Names that differ by their case alone would share a JSON name, which the pool rejects; nothing reads it.
    message.field.add(
        name=name, json_name=f"f{number}", number=number, label=label, type=kind, type_name=type_name
    )


def _is_typed(schema: Schema) -> bool:
    """Return whether rules can access a field: fields that allow any type are hidden from them."""
    return bool(schema.type) or schema.int_or_string


@cache
def _well_known() -> tuple[FileDescriptorProto, ...]:
    from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2

    files = []
    for module in (struct_pb2, timestamp_pb2, duration_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return tuple(files)
