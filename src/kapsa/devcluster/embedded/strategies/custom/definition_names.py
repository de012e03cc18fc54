"""The names of CustomResourceDefinitions: the first definition gets a name, its conditions report it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["CLEANUP", "accept_names", "set_condition"]

CRD = dict[str, Any]
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that keeps a definition until its objects are gone."""


def accept_names(crd: CRD, others: Iterable[CRD], now: str) -> CRD | None:
    """Return the definition with the names that `others` leave to it; None if its status has them already."""
    requested = crd["spec"]["names"]
    status = crd.get("status") or {}
    accepted = status.get("acceptedNames") or {}
    if _same(requested, accepted):
        return None
    granted, conflict = _grant(requested, accepted, *_taken(crd["spec"]["group"], others))
    before = _find_condition(status, "NamesAccepted") or {}
    reason, text = conflict or ("NoConflicts", "no conflicts found")
    state = "False" if conflict else "True"
    reported = (before.get("status"), before.get("reason"), before.get("message"))
    if _same(granted, accepted) and reported == (state, reason, text):
        return None
    changed = {**crd, "status": {**status, "acceptedNames": granted}}
    changed["status"]["conditions"] = [dict(condition) for condition in status.get("conditions") or ()]
    set_condition(changed, "NamesAccepted", state, reason, text, now)
    _report_progress(changed, accepted=not conflict, now=now)
    return changed


def set_condition(crd: CRD, type_: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition. Its transition time changes only with its status."""
    conditions = crd["status"]["conditions"] = list(crd["status"].get("conditions") or ())
    entry = {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    for index, current in enumerate(conditions):
        if current["type"] == type_:
            if current["status"] == status:
                entry["lastTransitionTime"] = current["lastTransitionTime"]
            conditions[index] = entry
            return
    conditions.append(entry)


def _find_condition(status: dict[str, Any], type_: str) -> dict[str, Any] | None:
    return next((entry for entry in status.get("conditions") or () if entry["type"] == type_), None)


def _report_progress(crd: CRD, *, accepted: bool, now: str) -> None:
    """Set the condition Established. An established definition stays established."""
    established = _find_condition(crd["status"], "Established")
    if established is not None and (established["status"] == "True" or not accepted):
        return
    if accepted:
        text = "the initial names have been accepted"
        set_condition(crd, "Established", "False", "Installing", text, now)
    else:
        set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now)


def _same(one: CRD, other: CRD) -> bool:
    return {key: value for key, value in one.items() if value} == {
        key: value for key, value in other.items() if value
    }


def _taken(group: str, others: Iterable[CRD]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        names = (other.get("status") or {}).get("acceptedNames") or {}
        if other["spec"]["group"] == group:
            resources |= {
                names.get("plural", ""),
                names.get("singular", ""),
                *(names.get("shortNames") or ()),
            }
            kinds |= {names.get("kind", ""), names.get("listKind", "")}
    return resources - {""}, kinds - {""}


def _grant(
    requested: CRD, accepted: CRD, resources: set[str], kinds: set[str]
) -> tuple[CRD, tuple[str, str] | None]:
    """Return the granted names, and the reason and message of the last conflict."""
    granted = dict(accepted)
    conflict: tuple[str, str] | None = None
    for key, used in (("plural", resources), ("singular", resources), ("kind", kinds), ("listKind", kinds)):
        name = requested.get(key, "")
        if name != accepted.get(key) and name in used:
            conflict = (f"{key[0].upper()}{key[1:]}Conflict", f'"{name}" is already in use')
        else:
            granted[key] = name
    short, before = requested.get("shortNames") or [], accepted.get("shortNames") or []
    conflicts = [f'"{name}" is already in use' for name in short if name not in before and name in resources]
    if conflicts:
        text = conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
        conflict = ("ShortNamesConflict", text)
    elif short:
        granted["shortNames"] = short
    else:
        granted.pop("shortNames", None)
    if requested.get("categories"):
        granted["categories"] = requested["categories"]
    else:
        granted.pop("categories", None)
    return granted, conflict
