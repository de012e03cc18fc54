"""Descriptions of the built-in kinds' fields, which `kubectl explain` prints: a data file that tools/openapi generates.

Only the OpenAPI documents have them, so the file is read when a client requests the first of those.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["DESCRIPTIONS_FILE", "describe", "field_descriptions"]

DESCRIPTIONS_FILE = Path(__file__).parents[1] / "data" / "descriptions-1.36.json.gz"


class _Descriptions(msgspec.Struct, frozen=True):
    licence: str
    definitions: dict[str, msgspec.Raw]


@cache
def _load() -> dict[str, msgspec.Raw]:
    packed = DESCRIPTIONS_FILE.read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=_Descriptions).definitions


def field_descriptions(name: str) -> Mapping[str, str]:
    """Return the text of a definition under the empty name, and those of its properties under theirs."""
    raw = _load().get(name)
    return {} if raw is None else msgspec.json.decode(raw, type=dict[str, str])


def describe(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a built-in definition with its descriptions."""
    texts = field_descriptions(name)
    described = dict(schema)
    if "" in texts:
        described["description"] = texts[""]
    if "properties" in schema:
        described["properties"] = {
            key: {**child, "description": texts[key]} if key in texts else child
            for key, child in schema["properties"].items()
        }
    return described
