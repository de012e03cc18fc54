"""YAML that nobody vouches for, read as Kubernetes reads it: several documents, no duplicate keys, no bombs.

PyYAML alone takes `2026-01-01` for a date, `1:30` for ninety and the last of two equal keys; and it builds whatever a few
lines of aliases expand to. Here the nodes of each document are counted as if every alias were written out, before anything
is built.
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
    """How much one file, or one program's output, may hold."""

    bytes: int = 8 * 1024 * 1024
    documents: int = 1000
    depth: int = 60
    nodes: int = 300_000
    """Values of all documents together, with aliases written out."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Knows the plain scalars that JSON knows, in the spellings that Kubernetes reads."""

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
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = str(node.value).replace("_", "").lower()
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if len(digits) > 100:
        raise yaml.MarkedYAMLError(problem="a number with more than 100 digits", problem_mark=node.start_mark)
    if len(digits) > 1 and digits.startswith("0") and digits[1] not in "xob":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    number = float(str(node.value).replace("_", ""))
    if not math.isfinite(number):
        raise yaml.MarkedYAMLError(problem="a number out of range", problem_mark=node.start_mark)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
for _tag in ("binary", "timestamp", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_undefined)


def load_documents(content: bytes, what: str, limits: YamlLimits | None = None) -> list[Any]:
    """The documents of a file. `what` names the file in errors.

    :raises RenderFailed: it is not YAML, or a key is there twice.
    :raises LimitExceeded: it holds more than the limits allow, written out or not.
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
                    raise LimitExceeded(f"{what} holds more than {limits.documents} documents")
                node = loader.get_node()
                left -= _Weight(what, most=left, deepest=limits.depth).of(node)[0]
                documents.append(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise RenderFailed(f"{what} is not YAML: {_told(error)}") from None
    except (ValueError, TypeError) as error:
        raise RenderFailed(f"{what} is not YAML: {error}") from None
    return documents


def load_objects(content: bytes, what: str, limits: YamlLimits | None = None) -> list[Manifest]:
    """The Kubernetes objects of a file, with those of lists one by one.

    :raises RenderFailed: as `load_documents`, and if a document is no object.
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
            f"{what} holds a document that is no Kubernetes object: it has no apiVersion and kind"
        )
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, what)
        return
    if not isinstance(document.get("metadata"), dict):
        raise RenderFailed(f"{what} holds a {document['kind']} without metadata")
    yield document


def _check_depth(content: bytes, what: str, deepest: int) -> None:
    """Look at the nesting event by event: libyaml's composer recurses in C, and a deep document would end the process."""
    depth = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > deepest:
            raise LimitExceeded(f"{what} is nested more than {deepest} levels deep")


class _Weight:
    """How many values a node stands for, and how deep they go, with its aliases written out."""

    def __init__(self, what: str, *, most: int, deepest: int) -> None:
        self._what = what
        self._most = most
        self._deepest = deepest
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node) -> tuple[int, int]:
        identity = id(node)
        if identity in self._known:
            return self._known[identity]
        if identity in self._open:
            raise RenderFailed(f"{self._what} holds an alias inside of what it stands for")
        self._open.add(identity)
        weight, height = 1, 0
        for child in self._children(node):
            of_child, height_of_child = self.of(child)
            weight, height = weight + of_child, max(height, height_of_child + 1)
            if weight > self._most or height > self._deepest:
                raise LimitExceeded(
                    f"{self._what} holds too many values, or too deep ones, with its aliases written out"
                )
        self._open.discard(identity)
        self._known[identity] = weight, height
        return weight, height

    def _children(self, node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            yield from node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise RenderFailed(f"{self._what}, line {key.start_mark.line + 1}: a key must be text")
                if key.value in seen:
                    raise RenderFailed(
                        f"{self._what}, line {key.start_mark.line + 1}: the key {key.value!r} is there twice"
                    )
                seen.add(key.value)
                if key.tag not in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"):
                    key.tag = "tag:yaml.org,2002:str"  # keys are text: 80 and true, too
                yield value


def _told(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())[:200]
