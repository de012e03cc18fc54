"""The podFailurePolicy of Jobs."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object


def action_for(job: Object, pod: Object) -> tuple[str, str]:
    """Return the action for a failed pod (`FailJob`, `Ignore` or `Count`) and, for FailJob, its message."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for position, rule in enumerate(rules):
        why = _match(rule, pod)
        if why:
            return rule["action"], f"{why} matching {rule['action']} rule at index {position}"
    return "Count", ""


def _match(rule: dict[str, Any], pod: Object) -> str:
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    status = pod.get("status") or {}
    if rule.get("onExitCodes"):
        for container in [
            *(status.get("containerStatuses") or ()),
            *(status.get("initContainerStatuses") or ()),
        ]:
            code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
            if code and _code_matches(rule["onExitCodes"], container["name"], code):
                return f"Container {container['name']} for pod {where} failed with exit code {code}"
        return ""
    for condition in status.get("conditions") or ():
        for pattern in rule.get("onPodConditions") or ():
            if condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True"):
                return f"Pod {where} has condition {condition['type']}"
    return ""


def _code_matches(requirement: dict[str, Any], container: str, code: int) -> bool:
    if requirement.get("containerName") not in (None, container):
        return False
    listed = code in (requirement.get("values") or ())
    return listed if requirement["operator"] == "In" else not listed
