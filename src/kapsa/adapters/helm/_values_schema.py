"""The schemas of a chart's values: whether they refer to other files or servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["schemas_are_self_contained"]

_STANDARD_DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[4-7]|draft/(2019-09|2020-12))/schema#?")
_LARGEST_SCHEMA = 2 * 1024 * 1024
_MOST_SCHEMAS = 100


def schemas_are_self_contained(chart: Path) -> bool:
    """Return whether all schemas of the chart and its subcharts refer to themselves only.

    helm follows references in a schema to any file and any server. A packed subchart is not inspected, so its
    schema counts as one that refers elsewhere.
    """
    if any(chart.rglob("*.tgz")):
        return False
    schemas = list(chart.rglob("values.schema.json"))
    return len(schemas) <= _MOST_SCHEMAS and all(_is_self_contained(schema) for schema in schemas)


def _is_self_contained(path: Path) -> bool:
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content) if len(content) <= _LARGEST_SCHEMA else None
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(schema, dict):
        return False
    for key, value in _pairs(schema):
        if key == "$schema" and not (isinstance(value, str) and _STANDARD_DIALECT.fullmatch(value)):
            return False
        if key in ("$ref", "$dynamicRef", "$recursiveRef") and not (
            isinstance(value, str) and value.startswith("#")
        ):
            return False
    return True


def _pairs(schema: Any) -> Iterator[tuple[str, Any]]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield from node.items()
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
