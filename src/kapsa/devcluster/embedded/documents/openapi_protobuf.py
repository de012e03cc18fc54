"""OpenAPI version 2 as protobuf, the only form in which kubectl and client-go read it.

They fall back to it for kinds that version 3 does not have; without it, a manifest of an unknown kind would
end in an error about media types. Paths are left out: those clients read the definitions only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["ACCEPTED", "MEDIA_TYPE", "encode_v2"]

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
ACCEPTED = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""The media type of a reply, and the older one that kubectl requests."""

Document = dict[str, Any]

# Field numbers of openapi.v2.Schema.
_STRINGS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSIONS = 19, 21, 22, 23, 25, 31


def encode_v2(document: Document) -> bytes:
    """Encode a swagger document as an `openapi.v2.Document`."""
    info = document["info"]
    definitions = _named(document["definitions"].items())
    return b"".join(
        (
            _text(1, document["swagger"]),
            _bytes(2, _text(1, info["title"]) + _text(2, info["version"])),
            _bytes(8, b""),
            _bytes(9, definitions),
        )
    )


def _named(schemas: Iterable[tuple[str, Document]]) -> bytes:
    """Encode repeated `NamedSchema`s."""
    return b"".join(_bytes(1, _text(1, name) + _bytes(2, _schema(schema))) for name, schema in schemas)


def _schema(schema: Document) -> bytes:
    parts = [_text(number, schema[name]) for name, number in _STRINGS.items() if name in schema]
    parts += [_text(_REQUIRED, name) for name in schema.get("required") or ()]
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        parts.append(_bytes(_ADDITIONAL, _bytes(1, _schema(additional))))
    if "type" in schema:
        parts.append(_bytes(_TYPE, _text(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_bytes(_ITEMS, _bytes(1, _schema(schema["items"]))))
    if schema.get("properties"):
        parts.append(_bytes(_PROPERTIES, _named(schema["properties"].items())))
    parts += [_extension(name, value) for name, value in schema.items() if name.startswith("x-")]
    return b"".join(parts)


def _extension(name: str, value: Any) -> bytes:
    """Encode a `NamedAny` that contains YAML, of which JSON is a subset."""
    return _bytes(_EXTENSIONS, _text(1, name) + _bytes(2, _bytes(2, msgspec.json.encode(value))))


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
