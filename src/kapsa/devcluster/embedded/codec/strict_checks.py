"""Strict decoding: duplicate and unknown fields of a body's text, in the words of the real server."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec import protobuf
from kapsa.devcluster.embedded.codec.bodies import is_yaml, media_type

__all__ = ["OPERATION_FIELDS", "applied_duplicates", "duplicate_fields", "operation_problems"]


def duplicate_fields(body: bytes, decoded: Any, content_type: str) -> list[str]:
    """Return an error for each repeated key of the body; `decoded` has the last value of each."""
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return []  # a message cannot have any
    if is_yaml(content_type):
        return _yaml_duplicates(body)
    return [f'duplicate field "{path}"' for path in _duplicates(body, decoded)]


def applied_duplicates(body: bytes, decoded: Any) -> list[str]:
    """Return the same for an applied configuration, whose errors are always those of YAML."""
    if body.lstrip()[:1] == b"{":
        # YAML in braces is not JSON, and goes on to the YAML check.
        with contextlib.suppress(json.JSONDecodeError):
            if not _duplicates(body, decoded):
                return []
    return _yaml_duplicates(body)


def _yaml_duplicates(body: bytes) -> list[str]:
    # Most clients send JSON or protobuf, and need not wait for PyYAML when the server starts.
    from kapsa.devcluster.embedded.codec.go_yaml import duplicates

    return duplicates(body)


def operation_problems(body: bytes, operations: list[Any]) -> list[str]:
    """Return an error for each unknown or repeated field of a JSON patch's operations."""
    problems = [f'duplicate field "{path}"' for path in _duplicates(body, operations)]
    for index, operation in enumerate(operations):
        unknown = [name for name in operation if name not in OPERATION_FIELDS]
        problems += [f'unknown field "[{index}].{name}"' for name in unknown]
    return [f"json patch {problem}" for problem in problems]


OPERATION_FIELDS = {"op": str, "path": str, "from": str, "value": object}


def _duplicates(body: bytes, decoded: Any) -> list[str]:
    # A fast check for most bodies: without duplicates, the compacted text is as long as the decoded object's.
    with contextlib.suppress(msgspec.DecodeError):  # for invalid Unicode
        if len(msgspec.json.format(body, indent=-1)) == len(msgspec.json.encode(decoded)):
            return []
    repeated: list[str] = []
    _walk(json.loads(body.decode(errors="replace"), object_pairs_hook=_Pairs), "", repeated)
    return repeated


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, in order and with repetitions."""


def _walk(value: Any, path: str, repeated: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            where = f"{path}.{name}" if path else name
            if name in seen:
                repeated.append(where)
            seen.add(name)
            _walk(item, where, repeated)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", repeated)
