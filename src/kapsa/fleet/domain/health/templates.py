"""Pod templates: a gate needs evidence about the template that was approved, and about no other.

Drift shows the fields of a release that another manager has taken. A gate looks further: a field that was added to a
template, or removed from it, makes other pods than the approved ones, too.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

__all__ = [
    "approved_additions",
    "judge_template",
    "template_additions",
    "template_changes",
    "unread_template",
]

_TEMPLATE = ".spec.template"
_DEEPEST = 50
"""The depth of owned fields that is read: a hostile cluster may nest them without end."""
_BEFORE_APPLY = "before-first-apply"
"""The manager to which the API server gives what an object without owners had before its first server-side apply.

Any client may call itself so: the name alone proves nothing."""
_HARMLESS = frozenset(
    f"{_TEMPLATE}.metadata.{name}"
    for name in (
        "annotations",
        "labels",
        "annotations.kubectl.kubernetes.io/restartedAt",
        "creationTimestamp",
    )
)
"""Fields without a meaning of their own: maps whose entries are owned one by one, a restart, and a time that is never
set."""


def template_changes(
    manifest: Mapping[str, Any], managed_fields: Any, owner: str
) -> Iterator[tuple[str, str]]:
    """Yield path and manager of each field of a pod template that is not as the manifest has it.

    The manager is empty for a field of the manifest that nobody owns: a client has removed it.
    """
    own, others = _of_template(managed_fields, owner)
    yield from _removed(_template(manifest), own, others, _TEMPLATE)
    for path, manager, _ in _foreign(manifest, own, others):
        yield path, manager


def template_additions(
    manifest: Mapping[str, Any], managed_fields: Any, owner: str
) -> Iterator[tuple[str, str]]:
    """Yield path and manager of each field of a pod template that another manager has and the manifest does not set.

    An upgrade leaves those as they are: an annotation of a tool that restarts pods, or what the API server set by
    default for the client that created the object.
    """
    own, others = _of_template(managed_fields, owner)
    for path, manager, declared in _foreign(manifest, own, others):
        if not declared:
            yield path, manager


def approved_additions(
    planned: Iterable[FieldDrift], present: Collection[FieldDrift]
) -> tuple[FieldDrift, ...]:
    """Return the additions of a plan that are there right before the upgrade: what came after the approval is not.

    Those of an object without owners appear with the upgrade, and were in the plan because its dry run made them appear.
    """
    seen = frozenset(present)
    return tuple(each for each in planned if each in seen or each.manager == _BEFORE_APPLY)


def _template(manifest: Mapping[str, Any]) -> Any:
    return (manifest.get("spec") or {}).get("template")


def _of_template(managed_fields: Any, owner: str) -> tuple[OwnedFields, OwnedFields]:
    own, others = owned_fields(managed_fields, owner)
    for key in ("f:spec", "f:template"):
        own, others = below(own, key), below(others, key)
    return own, others


def _foreign(
    manifest: Mapping[str, Any], own: OwnedFields, others: OwnedFields
) -> Iterator[tuple[str, str, bool]]:
    """Yield path, manager, and whether the manifest sets it, of each field that only others own."""
    for manager, tree in others:
        for path, declared in _added(tree, own, _template(manifest), _TEMPLATE, _DEEPEST):
            if path not in _HARMLESS:
                yield path, manager, declared


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


def _added(tree: FieldTree, own: OwnedFields, node: Any, path: str, depth: int) -> Iterator[tuple[str, bool]]:
    """Yield the fields of another manager that the owner does not share, and whether the manifest sets each."""
    if any(not shared for _, shared in own):
        return
    children = {key: child for key, child in tree.items() if key != "." and isinstance(child, Mapping)}
    if not children or not depth:
        if not own:
            yield path, node is not None
        return
    for key, child in children.items():
        yield from _added(child, below(own, key), _part(node, key), path + _step(key), depth - 1)


def _part(node: Any, key: str) -> Any:
    """Return the part of a manifest at a key of owned fields, None if it has none."""
    start, _, name = key.partition(":")
    if start == "f":
        return node.get(name) if isinstance(node, Mapping) else None
    items = node if isinstance(node, list) else ()
    return next((item for item in items if item_keys([("", {key: {}})], item)), None)


def _step(key: str) -> str:
    """Return a key of owned fields as a part of a path."""
    start, _, name = key.partition(":")
    if start == "f":
        return f".{name}"
    try:
        return item_selector(key)
    except (ValueError, AttributeError):
        return f"[{json.dumps(key)}]"


def judge_template(
    drift: DriftReading, left: Sequence[tuple[str, str]] = (), before: Collection[FieldDrift] = ()
) -> HealthCheck | None:
    """Return a check that passes no gate if somebody changed the pod template of a controller; else None.

    Its pods then say nothing about the version that was approved. `left` has the objects and fields that the plan
    leaves to other managers: those were approved as they are. `before` has the additions of the plan that the same
    managers had made before the upgrade: the version that ran before had them, too.
    """
    changed = [
        each
        for each in drift.fields
        if each.field.startswith(_TEMPLATE)
        and each not in before
        and not any(_covers(field, each) for field in left)
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
