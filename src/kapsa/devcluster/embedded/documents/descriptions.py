"""Descriptions of the built-in kinds' fields, which `kubectl explain` prints.

They are read from the docstrings of `lightkube-models`, a package that is generated from the OpenAPI documents of
Kubernetes. Without it the documents are complete but for these texts. Only the OpenAPI documents have them, so a module
is loaded when a client requests the first of those.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["describe", "field_descriptions", "source_version"]

_PACKAGE = "lightkube-models"
_FIELD = re.compile(r"^\* \*\*(\w+)\*\* ``[^`]*`` - ", re.MULTILINE)
_LIST_ITEM = re.compile(r"\s*[-*] ")


def source_version() -> str:
    """Return the version of the package that the descriptions come from; empty without it."""
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def field_descriptions(name: str) -> Mapping[str, str]:
    """Return the text of a definition under the empty name, and those of its properties under theirs."""
    *_, group, version, kind = ["", "", *name.split(".")]
    documentation = _docstrings(f"{group}_{version}").get(kind, "")
    return _texts(documentation) if documentation else {}


@cache
def _docstrings(module: str) -> Mapping[str, str]:
    """Return the docstrings of a module's classes. It is parsed, since importing it takes the whole of lightkube."""
    try:
        package = importlib.util.find_spec("lightkube.models")
    except ImportError:
        return {}
    directories = package.submodule_search_locations if package is not None else None
    source = Path(directories[0], f"{module}.py") if directories else None
    if source is None or not source.is_file():
        return {}
    nodes = ast.parse(source.read_text(encoding="utf-8")).body
    return {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.ClassDef)}


def _texts(documentation: str) -> dict[str, str]:
    about, _, fields = documentation.partition("**parameters**")
    texts = {"": _unwrapped(about)}
    parts = _FIELD.split(fields)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        texts[name.removesuffix("_")] = _unwrapped(text)
    return texts


def _unwrapped(text: str) -> str:
    """Return the text with each paragraph, and each item of a list, on one line."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if lines and lines[-1] and line.strip() and not _LIST_ITEM.match(line):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line.strip())
    return "\n".join(lines)


def describe(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a built-in definition with its descriptions."""
    texts = field_descriptions(name)
    described = dict(schema)
    if texts.get(""):
        described["description"] = texts[""]
    if "properties" in schema:
        described["properties"] = {
            key: {**child, "description": texts[key]} if key in texts else child
            for key, child in schema["properties"].items()
        }
    return described
