"""JSONPath for printer columns: fields, indices, slices, wildcards, filters and recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

__all__ = ["JsonPathError", "find"]

Step = Callable[[Any], Iterator[Any]]
_FIELD = re.compile(r"(?:[^.\[\]\\]|\\.)+")
_SLICE = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d*))?")
_FILTER = re.compile(r"\?\(\s*@((?:\.|\[).*?)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?)\s*)?\)", re.DOTALL)


class JsonPathError(ValueError):
    """A path that cannot be parsed. The message contains the position."""


def find(path: str, value: Any) -> list[Any]:
    """Return the values at `path` in `value`. Missing keys are skipped."""
    results = [value]
    for step in _compile(path):
        results = [result for item in results for result in step(item)]
    return results


@lru_cache(maxsize=1024)
def _compile(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 0
    while at < len(path):
        if path.startswith("..", at):
            steps.append(_descend)
            at += 1 if path.startswith("..[", at) else 2
            if at < len(path) and path[at] not in ".[":
                at, step = _field(path, at)
                steps.append(step)
            elif path.startswith(".[", at):
                at += 1
        elif path[at] == ".":
            at += 1
            if at < len(path) and path[at] != "[":
                at, step = _field(path, at)
                steps.append(step)
        elif path[at] == "[":
            end = _closing(path, at)
            steps.append(_bracket(path[at + 1 : end].strip()))
            at = end + 1
        else:
            at, step = _field(path, at)
            steps.append(step)
    return tuple(steps)


def _closing(path: str, at: int) -> int:
    """Return the index of the bracket that closes the one at `at`, respecting quotes and nesting."""
    depth, quote, index = 0, "", at
    while index < len(path):
        character = path[index]
        if character == "\\":
            index += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if not depth:
                return index
        index += 1
    raise JsonPathError(f"unterminated array in {path!r}")


def _field(path: str, at: int) -> tuple[int, Step]:
    match = _FIELD.match(path, at)
    if match is None:
        raise JsonPathError(f"unexpected {path[at]!r} in {path!r}")
    name = re.sub(r"\\(.)", r"\1", match[0])
    return match.end(), _children if name == "*" else _key(name)


def _bracket(text: str) -> Step:
    if text == "*":
        return _children
    if text.startswith("?"):
        return _filter(text)
    if text[:1] in "'\"":
        names = [part.strip()[1:-1] for part in text.split(",")]
        return lambda value: (result for name in names for result in _key(name)(value))
    sliced = _SLICE.fullmatch(text)
    if sliced is not None:
        bounds = slice(*(int(part) if part else None for part in sliced.groups()))
        return lambda value: iter(value[bounds] if isinstance(value, list) else ())
    if re.fullmatch(r"-?\d+(\s*,\s*-?\d+)*", text):
        indices = [int(part) for part in text.split(",")]
        return lambda value: (
            value[index] for index in indices if isinstance(value, list) and -len(value) <= index < len(value)
        )
    raise JsonPathError(f"cannot parse [{text}]")


def _key(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descend(child)


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise JsonPathError(f"cannot parse [{text}]")
    path, operator, literal = match[1], match[2], match[3]
    expected = _literal(literal) if operator else None

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            results = find(path, item)
            if results and (operator is None or _compare(results[0], operator, expected)):
                yield item

    return step


def _literal(text: str) -> Any:
    if text[:1] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise JsonPathError(f"cannot compare with {text!r}") from None


def _compare(left: Any, operator: str, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool) or isinstance(left, str) != isinstance(right, str):
        return operator == "!="
    try:
        outcomes = {"==": left == right, "!=": left != right, "<": left < right, ">": left > right}
    except TypeError:
        return operator == "!="
    if operator in outcomes:
        return bool(outcomes[operator])
    return bool(left <= right if operator == "<=" else left >= right)
