"""YAML as Kubernetes reads it, a superset of JSON, with the errors of Go's YAML library."""

from __future__ import annotations

import itertools
from typing import Any

import yaml

from kapsa.devcluster.wire.go_json import TOO_DEEP
from kapsa.schemas.go_format import quote

__all__ = ["MalformedYamlError", "duplicates", "load"]

MAXIMUM_DEPTH = 10_000
"""Levels of nesting that Go's library accepts."""
_READABLE_DEPTH = 1000
"""Levels that the composer can read: it recurses in C, where too many would crash the process."""
_EXPANDED_NODES = 1_000_000
"""More nodes than a body of the largest size can hold without aliases."""
_STRING = "tag:yaml.org,2002:str"
_KEY_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))


class MalformedYamlError(ValueError):
    """A document that cannot be read."""


class _Loader(yaml.CSafeLoader):
    """A loader that keeps timestamps as text, turns keys into text and accepts unknown tags."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        for key, _ in node.value:
            if key.tag in _KEY_TAGS:
                value = self.construct_object(key)
                key.value = str(value).lower() if isinstance(value, bool) else str(value)
                key.tag = _STRING
                del self.constructed_objects[key]
        return super().construct_mapping(node, deep)

    def construct_untagged(self, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.construct_yaml_map(node)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_yaml_seq(node)
        return self.construct_scalar(node)


_Loader.add_constructor(None, _Loader.construct_untagged)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load(body: bytes) -> Any:
    """Return the first document of a body.

    Raises MalformedYamlError when Go would reject it, RecursionError when it is deeper than Python's stack.
    """
    try:
        if b"*" in body or len(body) > _READABLE_DEPTH:
            _check_events(body)
        if b"*" in body:
            _check_aliases(body)
        return next(iter(yaml.load_all(body, Loader=_Loader)), None)
    except MalformedYamlError:
        raise
    except yaml.MarkedYAMLError as error:
        raise MalformedYamlError(f"yaml: {_where(error)}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise MalformedYamlError(f"yaml: {error.reason}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise MalformedYamlError(f"yaml: {error}") from None


def _check_events(body: bytes) -> None:
    """Raise MalformedYamlError for nesting and aliases that the composer cannot read."""
    open_anchors: list[str | None] = []
    anchors: set[str | None] = set()
    deepest = 0
    for event in yaml.parse(body, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in open_anchors:
                raise MalformedYamlError(f"yaml: anchor '{event.anchor}' value contains itself")
            if event.anchor not in anchors:
                raise MalformedYamlError(f"yaml: unknown anchor '{event.anchor}' referenced")
        elif isinstance(event, yaml.NodeEvent):
            anchors.add(event.anchor)
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            deepest = max(deepest, len(open_anchors))
            if deepest > MAXIMUM_DEPTH:
                line = event.start_mark.line if event.start_mark else 0
                where = f"line {line + 1}: " if line else ""
                raise MalformedYamlError(f"yaml: {where}exceeded max depth of {MAXIMUM_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, yaml.DocumentEndEvent):
            break
    if deepest > _READABLE_DEPTH:
        raise MalformedYamlError(f"yaml: {TOO_DEEP}")


def _check_aliases(body: bytes) -> None:
    """Raise MalformedYamlError for a document that a few bytes of aliases expand too far."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        computed = sizes.get(id(node))
        if computed is not None:
            return computed
        total = 1
        if isinstance(node, yaml.SequenceNode):
            total += sum(size(item) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            total += sum(size(key) + size(value) for key, value in node.value)
        sizes[id(node)] = min(total, _EXPANDED_NODES)
        return sizes[id(node)]

    for root in itertools.islice(yaml.compose_all(body, Loader=_Loader), 1):
        if size(root) >= _EXPANDED_NODES:
            raise MalformedYamlError("yaml: document contains excessive aliasing")


def _where(error: yaml.MarkedYAMLError) -> str:
    """Return the line as Go's library counts it: from zero, except in the scanner; empty for line zero."""
    context, problem = error.context_mark, error.problem_mark
    line = (context.line if context else 0) or (problem.line if problem else 0)
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    return f"line {line}: " if line else ""


def duplicates(body: bytes) -> list[str]:
    """Return an error for each repeated key of a mapping, for a body that `load` accepts."""
    repeated: list[str] = []
    pending = list(itertools.islice(yaml.compose_all(body, Loader=_Loader), 1))
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    repeated.append(
                        f"line {key.start_mark.line + 1}: key {quote(str(key.value))} already set in map"
                    )
                seen.add(key.value)
                pending.append(value)
    return repeated
