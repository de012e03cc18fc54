"""Kubernetes protobuf: built-in kinds as typed Go clients send them, in an envelope that names their kind.

The messages are data, read from the Go structs by tools/controlplane/protobuf. A field that Go holds by value is
on the wire even when it is unset, so its zero value means the same as its absence and is dropped here; the zero
value of a pointer is kept.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["MAGIC", "MEDIA_TYPE", "MalformedProtobufError", "decode", "encode", "has_kind"]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_DATA_FILE = Path(__file__).parents[1] / "data" / "protobuf-1.36.json.gz"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Object = dict[str, Any]


class MalformedProtobufError(ValueError):
    """A body that is not a protobuf message of its kind."""


class _Field(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """The JSON name; empty for a struct whose fields stand in its parent."""
    type: str
    """A scalar type, or the name of a message."""
    flags: str = ""

    @property
    def repeated(self) -> bool:
        return "r" in self.flags

    @property
    def is_map(self) -> bool:
        return "m" in self.flags

    @property
    def pointer(self) -> bool:
        """True if the zero value differs from the absence of a value."""
        return "p" in self.flags

    @property
    def wraps_list(self) -> bool:
        """True if the message is a list of its own, with the items in field 1."""
        return "w" in self.flags


class _Messages(msgspec.Struct, frozen=True):
    kinds: dict[str, str]
    """Messages by apiVersion/kind."""
    messages: dict[str, dict[int, _Field]]


@cache
def _messages() -> _Messages:
    packed = _DATA_FILE.read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=_Messages, strict=False)


def has_kind(api_version: str, kind: str) -> bool:
    """Return whether there is a Go type for a kind, served or not."""
    return f"{api_version}/{kind}" in _messages().kinds


# -- decoding ----------------------------------------------------------------------------------------------------


def decode(body: bytes) -> Object:
    """Return the object in an envelope, as JSON would have it. Raises MalformedProtobufError when there is none."""
    if not body:
        raise MalformedProtobufError("empty data")
    if not body.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise MalformedProtobufError(
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
        )
    if body == MAGIC:
        raise MalformedProtobufError("empty body")
    api_version = kind = ""
    raw: bytes = b""
    for number, wire, value in _fields(memoryview(body)[len(MAGIC) :]):
        if wire != _BYTES:
            continue
        if number == 1:
            for below, _, text in _fields(value):
                if below == 1:
                    api_version = _text(text)
                elif below == 2:
                    kind = _text(text)
        elif number == 2:
            raw = value
    message = _messages().kinds.get(f"{api_version}/{kind}")
    if message is None:
        raise MalformedProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    try:
        return {"apiVersion": api_version, "kind": kind, **_message(message, memoryview(raw))}
    except RecursionError:
        raise MalformedProtobufError("exceeded max depth") from None


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, wire type and value of each field of a message."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == _VARINT:
            value, position = _varint(data, position)
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if length > end - position:
                raise MalformedProtobufError("unexpected EOF")
            value = data[position : position + length]
            position += length
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if size > end - position:
                raise MalformedProtobufError("unexpected EOF")
            value = data[position : position + size]
            position += size
        else:
            raise MalformedProtobufError(f"proto: illegal wireType {wire}")
        if number <= 0:
            raise MalformedProtobufError(f"proto: illegal tag {number} (wire type {wire})")
        yield number, wire, value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position
            shift += 7
            if shift >= 70:
                raise MalformedProtobufError("proto: integer overflow")
    except IndexError:
        raise MalformedProtobufError("unexpected EOF") from None


def _message(name: str, data: memoryview) -> Object:
    fields = _messages().messages[name]
    obj: Object = {}
    for number, wire, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if wire != _wire_type(field):
            raise MalformedProtobufError(
                f"proto: wrong wireType = {wire} for field {field.name or field.type}"
            )
        if field.is_map:
            key, item = _entry(field, value)
            obj.setdefault(field.name, {})[key] = item
        elif field.repeated:
            obj.setdefault(field.name, []).append(_value(field, value))
        else:
            item = _value(field, value)
            if not field.name:
                obj.update(item)
            elif item is not None and (field.pointer or item not in ("", 0, False, {}, [])):
                obj[field.name] = item
            else:
                obj.pop(field.name, None)
    return obj


def _wire_type(field: _Field) -> int:
    if field.is_map or field.type not in ("int", "uint", "bool", "double"):
        return _BYTES
    return _FIXED64 if field.type == "double" else _VARINT


def _entry(field: _Field, data: memoryview) -> tuple[str, Any]:
    key, value = "", None
    for number, _, part in _fields(data):
        if number == 1:
            key = _text(part)
        elif number == 2:
            value = part
    if value is None:
        value = memoryview(b"") if _wire_type(msgspec.structs.replace(field, flags="")) == _BYTES else 0
    return key, _value(field, value)


def _value(field: _Field, value: Any) -> Any:
    reader = _READERS.get(field.type)
    if reader is not None:
        return reader(value)
    below = _message(field.type, value)
    return below.get("items", []) if field.wraps_list else below


def _text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _double(data: memoryview) -> float | int:
    value: float = struct.unpack("<d", data)[0]
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _first(data: memoryview) -> dict[int, Any]:
    return {number: value for number, _, value in _fields(data)}


def _quantity(data: memoryview) -> str:
    return _text(_first(data).get(1, memoryview(b"0"))) or "0"


def _int_or_string(data: memoryview) -> int | str:
    parts = _first(data)
    return _text(parts.get(3, memoryview(b""))) if parts.get(1) else _signed(parts.get(2, 0))


def _moment(data: memoryview) -> tuple[datetime, int] | None:
    if not data:
        return None
    parts = _first(data)
    seconds, nanoseconds = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
    try:
        return datetime.fromtimestamp(seconds, UTC), nanoseconds
    except (ValueError, OverflowError, OSError):
        raise MalformedProtobufError(f"timestamp {seconds} is out of range") from None


def _time(data: memoryview) -> str | None:
    moment = _moment(data)
    return None if moment is None else f"{moment[0]:%Y-%m-%dT%H:%M:%SZ}"


def _micro_time(data: memoryview) -> str | None:
    moment = _moment(data)
    return None if moment is None else f"{moment[0]:%Y-%m-%dT%H:%M:%S}.{moment[1] // 1000:06d}Z"


def _json(data: memoryview) -> Any:
    raw = bytes(_first(data).get(1, b""))
    if not raw:
        return None
    if raw.startswith(MAGIC):
        return decode(raw)
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise MalformedProtobufError(str(error)) from None


_PROPS = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps"


def _schema_or_bool(data: memoryview) -> Any:
    parts = _first(data)
    return _message(_PROPS, parts[2]) if 2 in parts else bool(parts.get(1))


def _schema_or_array(data: memoryview) -> Any:
    schemas = [_message(_PROPS, value) for number, _, value in _fields(data) if number == 2]
    one = _first(data).get(1)
    return schemas if one is None else _message(_PROPS, one)


def _schema_or_strings(data: memoryview) -> Any:
    texts = [_text(value) for number, _, value in _fields(data) if number == 2]
    one = _first(data).get(1)
    return texts if one is None else _message(_PROPS, one)


_READERS: dict[str, Any] = {
    "string": _text,
    "bytes": lambda data: base64.b64encode(data).decode(),
    "bool": bool,
    "int": _signed,
    "uint": int,
    "double": _double,
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "time": _time,
    "microtime": _micro_time,
    "json": _json,
    "rawextension": _json,
    "schemaorbool": _schema_or_bool,
    "schemaorarray": _schema_or_array,
    "schemaorstrings": _schema_or_strings,
}


# -- encoding ----------------------------------------------------------------------------------------------------


def encode(obj: Object) -> bytes:
    """Return a built-in object in its envelope. Raises KeyError for a kind that has no message."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    message = _messages().kinds[f"{api_version}/{kind}"]
    type_meta = _tagged(1, api_version.encode()) + _tagged(2, kind.encode())
    return (
        MAGIC + _tagged(1, type_meta) + _tagged(2, _encoded(message, obj)) + _tagged(3, b"") + _tagged(4, b"")
    )


def _encoded(message: str, obj: Object) -> bytes:
    out = bytearray()
    for number, field in _messages().messages[message].items():
        if not field.name:
            out += _tagged(number, _encoded(field.type, obj))
            continue
        value = obj.get(field.name)
        if value is None:
            continue
        if field.is_map:
            for key, item in value.items():
                out += _tagged(number, _tagged(1, key.encode()) + _written(2, field, item))
        elif field.repeated:
            for item in value:
                out += _written(number, field, item)
        else:
            out += _written(number, field, value)
    return bytes(out)


def _written(number: int, field: _Field, value: Any) -> bytes:
    if field.type in ("int", "uint", "bool"):
        return _number(number << 3 | _VARINT) + _number(int(value))
    if field.type == "double":
        return _number(number << 3 | _FIXED64) + struct.pack("<d", value)
    writer = _WRITERS.get(field.type)
    if writer is not None:
        return _tagged(number, writer(value))
    return _tagged(number, _encoded(field.type, {"items": value} if field.wraps_list else value))


def _tagged(number: int, data: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, int):
        return _number(1 << 3) + _number(0) + _number(2 << 3) + _number(value)
    return _number(1 << 3) + _number(1) + _number(2 << 3) + _number(0) + _tagged(3, value.encode())


def _write_moment(value: str) -> bytes:
    moment = datetime.fromisoformat(value)
    nanoseconds = moment.microsecond * 1000
    return _number(1 << 3) + _number(int(moment.timestamp() // 1)) + _number(2 << 3) + _number(nanoseconds)


def _write_json(value: Any) -> bytes:
    return _tagged(1, msgspec.json.encode(value))


def _write_schema_or(value: Any) -> bytes:
    if isinstance(value, bool):
        return _number(1 << 3) + _number(int(value))
    return _number(1 << 3) + _number(1) + _tagged(2, _encoded(_PROPS, value))


def _write_schema_or_list(value: Any) -> bytes:
    if isinstance(value, dict):
        return _tagged(1, _encoded(_PROPS, value))
    return b"".join(
        _tagged(2, item.encode() if isinstance(item, str) else _encoded(_PROPS, item)) for item in value
    )


_WRITERS: dict[str, Any] = {
    "string": str.encode,
    "bytes": base64.b64decode,
    "quantity": lambda value: _tagged(1, str(value).encode()),
    "intorstring": _write_int_or_string,
    "time": _write_moment,
    "microtime": _write_moment,
    "json": _write_json,
    "rawextension": _write_json,
    "schemaorbool": _write_schema_or,
    "schemaorarray": _write_schema_or_list,
    "schemaorstrings": _write_schema_or_list,
}
