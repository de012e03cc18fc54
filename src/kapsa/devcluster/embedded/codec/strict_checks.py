"""Strict decoding: fields that are unknown or given twice, named as the real server names them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec import go_yaml, protobuf
from kapsa.devcluster.embedded.codec.bodies import is_yaml, media_type

__all__ = ["OPERATION_FIELDS", "applied_duplicates", "duplicate_fields", "operation_problems"]


def duplicate_fields(body: bytes, decoded: Any, content_type: str) -> list[str]:
    """Keys that an object of the body has twice; ``decoded`` is the body with the last of them."""
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return []  # a message has neither
    if is_yaml(content_type):
        return go_yaml.duplicates(body)
    return [f'duplicate field "{path}"' for path in _duplicates(body, decoded)]


def applied_duplicates(body: bytes, decoded: Any) -> list[str]:
    """The same of an applied configuration, which is YAML even where it is JSON."""
    if body.lstrip()[:1] == b"{":
        # For YAML in braces it is simply read again.
        with contextlib.suppress(json.JSONDecodeError):
            if not _duplicates(body, decoded):
                return []
    return go_yaml.duplicates(body)


def operation_problems(body: bytes, operations: list[Any]) -> list[str]:
    """Fields of a JSON patch's operations that are unknown or given twice."""
    found = [f'duplicate field "{path}"' for path in _duplicates(body, operations)]
    for index, operation in enumerate(operations):
        unknown = [name for name in operation if name not in OPERATION_FIELDS]
        found += [f'unknown field "[{index}].{name}"' for name in unknown]
    return [f"json patch {problem}" for problem in found]


OPERATION_FIELDS = {"op": str, "path": str, "from": str, "value": object}


def _duplicates(body: bytes, decoded: Any) -> list[str]:
    # Almost no body has any: one that is as long without its spaces as what was read of it lost nothing.
    with contextlib.suppress(msgspec.DecodeError):  # for text that is no Unicode
        if len(msgspec.json.format(body, indent=-1)) == len(msgspec.json.encode(decoded)):
            return []
    found: list[str] = []
    _walk(json.loads(body.decode(errors="replace"), object_pairs_hook=_Pairs), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, in order and with repetitions."""


def _walk(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            where = f"{path}.{name}" if path else name
            if name in seen:
                found.append(where)
            seen.add(name)
            _walk(item, where, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", found)
