"""YAML that is not trusted, read as Kubernetes reads it: several documents, no duplicate keys, within limits.

PyYAML alone reads `2026-01-01` as a date and `1:30` as ninety, takes the last of two equal keys, and expands
aliases without a limit. Here the nodes of each document are counted with all aliases expanded, before
anything is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from kapsa.adapters.errors import LimitExceeded, RenderFailed
from kapsa.adapters.manifests.manifest import Manifest

__all__ = ["YamlLimits", "load_documents", "load_objects"]


class YamlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one file, or the output of one program, may contain."""

    bytes: int = 8 * 1024 * 1024
    documents: int = 1000
    depth: int = 60
    nodes: int = 300_000
    """Values in all documents, with aliases expanded."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader for the plain scalars of JSON, in the spellings that Kubernetes accepts."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool",
    re.compile(r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$"),
    list("yYnNtTfFoO"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"(?:[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?)$"
    ),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver(  # no number of JSON: Kubernetes rejects them, and so does `_float`
    "tag:yaml.org,2002:float", re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"), list("-+.")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = str(node.value).replace("_", "").lower()
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if len(digits) > 100:
        raise yaml.MarkedYAMLError(problem="a number has more than 100 digits", problem_mark=node.start_mark)
    if len(digits) > 1 and digits.startswith("0") and digits[1] not in "xob":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    text = str(node.value).replace("_", "").lower()
    number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(number):
        raise yaml.MarkedYAMLError(
            problem=f"the number {node.value} is out of range", problem_mark=node.start_mark
        )
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
for _tag in ("binary", "timestamp", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_undefined)


def load_documents(content: bytes, what: str, limits: YamlLimits | None = None) -> list[Any]:
    """Return the documents of a file. `what` is the name of the file in errors.

    Raises `RenderFailed` when it is not YAML or a key is duplicated, and `LimitExceeded` when it is too
    large, also with its aliases expanded.
    """
    limits = limits or YamlLimits()
    if len(content) > limits.bytes:
        raise LimitExceeded(f"{what} is larger than {limits.bytes // 1024} KB")
    documents: list[Any] = []
    try:
        _check_depth(content, what, limits.depth)
        loader = _Loader(content)
        try:
            left = limits.nodes
            while loader.check_node():
                if len(documents) >= limits.documents:
                    raise LimitExceeded(f"{what} has more than {limits.documents} documents")
                node = loader.get_node()
                left -= _Weight(what, most=left, deepest=limits.depth).of(node)[0]
                documents.append(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise RenderFailed(f"{what} is not YAML: {_message(error)}") from None
    except (ValueError, TypeError) as error:
        raise RenderFailed(f"{what} is not YAML: {error}") from None
    return documents


def load_objects(content: bytes, what: str, limits: YamlLimits | None = None) -> list[Manifest]:
    """Return the Kubernetes objects of a file, including the items of lists.

    Raises the errors of `load_documents`, and `RenderFailed` when a document is not an object.
    """
    objects: list[Manifest] = []
    for document in load_documents(content, what, limits):
        objects += _objects(document, what)
    return objects


def _objects(document: Any, what: str) -> Iterator[Manifest]:
    if document is None:
        return
    if not isinstance(document, dict) or not all(
        isinstance(document.get(field), str) and document[field] for field in ("apiVersion", "kind")
    ):
        raise RenderFailed(
            f"{what} has a document that is not a Kubernetes object: apiVersion or kind is missing"
        )
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, what)
        return
    if not isinstance(document.get("metadata"), dict):
        raise RenderFailed(f"{what} has a {document['kind']} without metadata")
    yield document


def _check_depth(content: bytes, what: str, deepest: int) -> None:
    """Check the nesting event by event.

    libyaml's composer recurses in C, and a deep document would crash the process.
    """
    depth = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > deepest:
            raise LimitExceeded(f"{what} is nested more than {deepest} levels deep")


class _Weight:
    """The number of values in a node and their depth, with aliases expanded."""

    def __init__(self, what: str, *, most: int, deepest: int) -> None:
        self._what = what
        self._most = most
        self._deepest = deepest
        self._weights: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node) -> tuple[int, int]:
        identity = id(node)
        if identity in self._weights:
            return self._weights[identity]
        if identity in self._open:
            raise RenderFailed(f"{self._what} has an alias that contains itself")
        self._open.add(identity)
        weight, height = 1, 0
        for child in self._children(node):
            of_child, height_of_child = self.of(child)
            weight, height = weight + of_child, max(height, height_of_child + 1)
            if weight > self._most or height > self._deepest:
                raise LimitExceeded(
                    f"{self._what} has too many values, or is nested too deeply, with its aliases expanded"
                )
        self._open.discard(identity)
        self._weights[identity] = weight, height
        return weight, height

    def _children(self, node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            yield from node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise RenderFailed(
                        f"{self._what}, line {key.start_mark.line + 1}: a key must be a string"
                    )
                if key.value in seen:
                    raise RenderFailed(
                        f"{self._what}, line {key.start_mark.line + 1}: the key {key.value!r} is duplicated"
                    )
                seen.add(key.value)
                if key.tag not in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"):
                    key.tag = "tag:yaml.org,2002:str"  # keys are strings, also 80 and true
                yield value


def _message(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())[:200]
