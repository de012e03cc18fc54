"""The marks of a release at rest: of one that blue-green installs, and of one that it has stopped.

A controller at rest has zero replicas, and its number in an annotation. A webhook at rest has a condition that matches
nothing, so that it is not called; everything else of it stays as its chart has it.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["REPLICAS", "active_webhooks", "desired_replicas", "idle_webhooks", "is_idle", "rest"]

REPLICAS = "fleet.kapsa-project.io/replicas"
"""The number of replicas of a controller that is at rest."""
_CONDITION = {"name": "fleet.kapsa-project.io/idle", "expression": "false"}
_SCALED = ("Deployment", "StatefulSet")
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

Manifest = dict[str, Any]


def rest(manifest: Manifest) -> Manifest:
    """Return an object of a manifest as a release at rest has it."""
    kind, group = manifest["kind"], str(manifest["apiVersion"]).partition("/")[0]
    if kind in _SCALED and group == "apps":
        spec = manifest.get("spec") or {}
        annotations = manifest["metadata"].get("annotations") or {}
        marked = {**annotations, REPLICAS: str(_number(spec.get("replicas"), 1))}
        metadata = {**manifest["metadata"], "annotations": marked}
        return {**manifest, "metadata": metadata, "spec": {**spec, "replicas": 0}}
    if kind in _WEBHOOKS and group == "admissionregistration.k8s.io" and manifest.get("webhooks"):
        return {**manifest, "webhooks": idle_webhooks(manifest["webhooks"])}
    return manifest


def desired_replicas(controller: Mapping[str, Any]) -> int:
    """Return the number of replicas that a controller has when it is not at rest."""
    annotations = controller["metadata"].get("annotations") or {}
    replicas = _number((controller.get("spec") or {}).get("replicas"), 1)
    return _number(annotations.get(REPLICAS), replicas)


def is_idle(webhook: Mapping[str, Any]) -> bool:
    """Return whether a webhook is at rest."""
    return any(each.get("name") == _CONDITION["name"] for each in webhook.get("matchConditions") or ())


def idle_webhooks(webhooks: list[Manifest]) -> list[Manifest]:
    """Return webhooks with a condition that matches nothing. They may be parts of a patch."""
    return [each if is_idle(each) else _with_condition(each) for each in webhooks]


def active_webhooks(webhooks: list[Manifest]) -> list[Manifest]:
    """Return webhooks without the condition that keeps them at rest."""
    return [_without_condition(each) if is_idle(each) else each for each in webhooks]


def _with_condition(webhook: Manifest) -> Manifest:
    return {**webhook, "matchConditions": [*(webhook.get("matchConditions") or ()), dict(_CONDITION)]}


def _without_condition(webhook: Manifest) -> Manifest:
    conditions = [each for each in webhook["matchConditions"] if each.get("name") != _CONDITION["name"]]
    others = {key: value for key, value in webhook.items() if key != "matchConditions"}
    return {**others, "matchConditions": conditions} if conditions else others


def _number(value: Any, default: int) -> int:
    """Return a count from an annotation or a field; anything else is the default."""
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 7 else default
