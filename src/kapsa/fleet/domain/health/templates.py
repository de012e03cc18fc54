"""Pod templates: a gate needs evidence about the template that was approved, and about no other.

Drift shows the fields of a release that another manager has taken. A gate looks further: a field that was added to a
template, or removed from it, makes other pods than the approved ones, too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kapsa.fleet.domain.health.drift import DriftReading, FieldDrift
from kapsa.fleet.domain.health.owned_fields import (
    FieldTree,
    OwnedFields,
    below,
    item_keys,
    item_selector,
    owned_fields,
)
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck

__all__ = ["judge_template", "template_changes", "unread_template"]

_TEMPLATE = ".spec.template"
_DEEPEST = 50
"""The depth of owned fields that is read: a hostile cluster may nest them without end."""
_HARMLESS = frozenset(
    f"{_TEMPLATE}.metadata.{name}"
    for name in ("annotations.kubectl.kubernetes.io/restartedAt", "creationTimestamp")
)
"""The first starts the same pods again, and the other is never set."""


def template_changes(
    manifest: Mapping[str, Any], managed_fields: Any, owner: str
) -> Iterator[tuple[str, str]]:
    """Yield path and manager of each field of a pod template that is not as the manifest has it.

    The manager is empty for a field of the manifest that nobody owns: a client has removed it.
    """
    own, others = owned_fields(managed_fields, owner)
    for key in ("f:spec", "f:template"):
        own, others = below(own, key), below(others, key)
    template = (manifest.get("spec") or {}).get("template")
    yield from _removed(template, own, others, _TEMPLATE)
    for manager, tree in others:
        for path in _added(tree, own, _TEMPLATE, _DEEPEST):
            if path not in _HARMLESS:
                yield path, manager


def _removed(node: Any, own: OwnedFields, others: OwnedFields, path: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a manifest that nobody owns. The API server keeps no owner of what is empty."""
    if node is None or node in ({}, []) or any(not tree for _, tree in (*own, *others)):
        return
    if not own and not others:
        yield path, ""
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _removed(value, below(own, f"f:{key}"), below(others, f"f:{key}"), f"{path}.{key}")
    elif isinstance(node, list):
        for number, item in enumerate(node):
            keys = item_keys((*own, *others), item)
            if not keys:
                yield f"{path}[{number}]", ""
            for key in keys:
                selected = path + item_selector(key)
                yield from _removed(item, below(own, key), below(others, key), selected)


def _added(tree: FieldTree, own: OwnedFields, path: str, depth: int) -> Iterator[str]:
    """Yield the fields of another manager that the owner does not share."""
    if any(not shared for _, shared in own):
        return
    children = {key: child for key, child in tree.items() if key != "." and isinstance(child, Mapping)}
    if not children or not depth:
        if not own:
            yield path
        return
    for key, child in children.items():
        yield from _added(child, below(own, key), path + _step(key), depth - 1)


def _step(key: str) -> str:
    """Return a key of owned fields as a part of a path."""
    start, _, name = key.partition(":")
    if start == "f":
        return f".{name}"
    try:
        return item_selector(key)
    except (ValueError, AttributeError):
        return f"[{json.dumps(key)}]"


def judge_template(drift: DriftReading, left: Sequence[tuple[str, str]] = ()) -> HealthCheck | None:
    """Return a check that passes no gate if somebody changed the pod template of a controller; else None.

    Its pods then say nothing about the version that was approved. `left` has the objects and fields that the plan
    leaves to other managers: those were approved as they are.
    """
    changed = [
        each
        for each in drift.fields
        if each.field.startswith(_TEMPLATE) and not any(_covers(field, each) for field in left)
    ]
    if not changed:
        return None
    first, more = changed[0], len(changed) - 1
    act = f"changed by {first.manager}" if first.manager else "removed by another client"
    message = f"{first.field} of {first.object} was {act}" + (f"; {more} more" if more else "")
    advice = "take the change back, or put it into the values and deploy again"
    return HealthCheck(CheckKind.TEMPLATE, Evidence.UNKNOWN, "Drift", f"{message[:400]}: {advice}")


def unread_template(cause: str) -> HealthCheck:
    """Return the check of pod templates that could not be read."""
    message = f"the pod templates could not be compared with the approved ones: {cause}"
    return HealthCheck(CheckKind.TEMPLATE, Evidence.UNKNOWN, "Unread", message[:500])


def _covers(left: tuple[str, str], change: FieldDrift) -> bool:
    name, field = left
    return name == change.object and (
        change.field == field or change.field.startswith((f"{field}.", f"{field}["))
    )
