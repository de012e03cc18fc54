"""The difference between two manifests for people, object by object, with everything secret masked."""

import base64
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import yaml

from kapsa.adapters.redaction import redact
from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.charts.scopes import is_crd
from kapsa.fleet.infrastructure.preflight.manifest_documents import object_name

__all__ = ["hook_events", "manifest_diff", "secret_texts"]

_LONGEST = 64 * 1024
_HOOK = "helm.sh/hook"
_SHORTEST_NUMBER = 4
_BASE64 = (re.compile(r"[A-Za-z0-9+/]{8,}"), re.compile(r"[A-Za-z0-9_-]{8,}"))
_STANDARD = str.maketrans("-_", "+/")
_FOLD = re.compile(r"\s+|\\[nrt]")
"""White space, also as a JSON text has it."""

Objects = Iterable[Mapping[str, Any]]


def manifest_diff(before: Objects, after: Objects, namespace: str, secrets: Iterable[str]) -> str:
    """Return a unified diff of the objects that are added, changed or removed, and the hooks that run.

    CRDs are named without content: their comparison says more. At most 64 KiB.
    """
    hidden = tuple(secrets)
    lines: list[str] = []
    size = 0
    for line in _lines(list(before), list(after), namespace, hidden):
        size += len(line.encode()) + 1
        if size > _LONGEST:
            lines.append(f"… the rest is left out: the diff is longer than {_LONGEST // 1024} KiB")
            break
        lines.append(line)
    return "\n".join(lines)


def hook_events(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the events at which Helm runs an object as a hook; none if it is not a hook."""
    annotations = content["metadata"].get("annotations")
    text = annotations.get(_HOOK) if isinstance(annotations, dict) else None
    return frozenset(each.strip() for each in str(text).split(",") if each.strip()) if text else frozenset()


def secret_texts(values: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the texts and long numbers at and below these paths of values."""
    for path in paths:
        node: Any = values
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        yield from _texts(node)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str) or (
        isinstance(node, int | float) and len(str(node)) > _SHORTEST_NUMBER and not isinstance(node, bool)
    ):
        yield str(node)


def _lines(
    before: list[Mapping[str, Any]], after: list[Mapping[str, Any]], namespace: str, secrets: tuple[str, ...]
) -> Iterator[str]:
    old = {object_name(each, namespace): each for each in before if not hook_events(each)}
    new = {object_name(each, namespace): each for each in after if not hook_events(each)}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield from _changed(name, old.get(name), new.get(name), secrets)
    for each in after:
        if events := hook_events(each):
            yield f"# hook {object_name(each, namespace)} runs at {', '.join(sorted(events))}"


def _changed(
    name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, secrets: tuple[str, ...]
) -> Iterator[str]:
    if is_crd(new or old or {}):
        act = (
            "is added"
            if old is None
            else "changes"
            if new is not None
            else "is kept, although the chart drops it"
        )
        yield f"# {name} {act}"
        return
    first, second = _shown(old, new, "before", secrets), _shown(new, old, "after", secrets)
    if first == second:
        yield f"# {redact(name, secrets)} changes in text that is hidden"
    yield from difflib.unified_diff(
        first,
        second,
        fromfile=redact(name, secrets) if old is not None else "/dev/null",
        tofile=redact(name, secrets) if new is not None else "/dev/null",
        lineterm="",
    )


def _shown(
    content: Mapping[str, Any] | None, other: Mapping[str, Any] | None, side: str, secrets: tuple[str, ...]
) -> list[str]:
    if content is None:
        return []
    masked = _masked_secret(content, other or {}, side) if content.get("kind") == "Secret" else content
    return yaml.safe_dump(_redacted(masked, secrets), allow_unicode=True, width=1000).splitlines()


def _masked_secret(content: Mapping[str, Any], other: Mapping[str, Any], side: str) -> dict[str, Any]:
    """Return a Secret in which each value is a mask that says no more than whether it changes."""
    result = dict(content)
    for field in ("data", "stringData"):
        if isinstance(entries := content.get(field), Mapping):
            others = other.get(field)
            same = others if isinstance(others, Mapping) else {}
            result[field] = {
                key: MASK if not other or same.get(key) == value else f"{MASK} ({side})"
                for key, value in entries.items()
            }
    return result


def _redacted(node: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(node, Mapping):
        return {_hidden(str(key), secrets): _redacted(value, secrets) for key, value in node.items()}
    if isinstance(node, list):
        return [_redacted(value, secrets) for value in node]
    if isinstance(node, str) and node != MASK:
        return _hidden(node, secrets)
    return MASK if not isinstance(node, bool) and str(node) in secrets else node


def _hidden(text: str, secrets: tuple[str, ...]) -> str:
    return MASK if _encodes_secret(text, secrets) else redact(text, secrets)


def _encodes_secret(text: str, secrets: tuple[str, ...], depth: int = 3) -> bool:
    """Return whether a part of a text is the base64 of one with a secret in it, such as a login or a private key."""
    plain = "\n".join(_decoded(text)) if depth else ""
    return bool(plain) and (redact(plain, secrets) != plain or _encodes_secret(plain, secrets, depth - 1))


def _decoded(text: str) -> Iterator[str]:
    """Yield what the base64 in a text may mean. It may be folded, escaped, and part of a longer word.

    A code that follows other letters begins at one of four offsets; what is decoded before it is noise.
    """
    unfolded = _FOLD.sub("", unquote(text)).replace("\\/", "/")
    runs = dict.fromkeys(run.translate(_STANDARD) for each in _BASE64 for run in each.findall(unfolded))
    for run in runs:
        for offset in range(4):
            whole = len(run) - ((len(run) - offset) % 4 == 1)
            part = run[offset:whole]
            yield base64.b64decode(part + "=" * (-len(part) % 4)).decode(errors="replace")
