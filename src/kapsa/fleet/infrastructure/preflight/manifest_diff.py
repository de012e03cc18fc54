"""The difference between two manifests for people, object by object, with everything secret masked."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.charts.scopes import is_crd
from kapsa.fleet.infrastructure.preflight.manifest_documents import object_name
from kapsa.fleet.orchestrator.hidden_texts import HiddenTexts

__all__ = ["hook_events", "manifest_diff"]

_LONGEST = 64 * 1024
_HOOK = "helm.sh/hook"

Objects = Iterable[Mapping[str, Any]]


def manifest_diff(before: Objects, after: Objects, namespace: str, secrets: Iterable[str]) -> str:
    """Return a unified diff of the objects that are added, changed or removed, and the hooks that run.

    CRDs are named without content: their comparison says more. At most 64 KiB.
    """
    hidden = HiddenTexts(secrets)
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


def _lines(
    before: list[Mapping[str, Any]], after: list[Mapping[str, Any]], namespace: str, hidden: HiddenTexts
) -> Iterator[str]:
    old = {object_name(each, namespace): each for each in before if not hook_events(each)}
    new = {object_name(each, namespace): each for each in after if not hook_events(each)}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield from _changed(name, old.get(name), new.get(name), hidden)
    for each in after:
        if events := hook_events(each):
            yield f"# hook {object_name(each, namespace)} runs at {', '.join(sorted(events))}"


def _changed(
    name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, hidden: HiddenTexts
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
    first, second = _shown(old, new, "before", hidden), _shown(new, old, "after", hidden)
    if first == second:
        yield f"# {hidden.redacted(name)} changes in text that is hidden"
    yield from difflib.unified_diff(
        first,
        second,
        fromfile=hidden.redacted(name) if old is not None else "/dev/null",
        tofile=hidden.redacted(name) if new is not None else "/dev/null",
        lineterm="",
    )


def _shown(
    content: Mapping[str, Any] | None, other: Mapping[str, Any] | None, side: str, hidden: HiddenTexts
) -> list[str]:
    if content is None:
        return []
    masked = _masked_secret(content, other or {}, side) if content.get("kind") == "Secret" else content
    return yaml.safe_dump(hidden.shown(masked), allow_unicode=True, width=1000).splitlines()


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
