"""The status of definitions: who got which name first, and the conditions that tell it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["CLEANUP", "accept_names", "set_condition"]

CRD = dict[str, Any]
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its objects are gone."""


def accept_names(crd: CRD, others: Iterable[CRD], now: str) -> CRD | None:
    """The definition with the names it gets beside `others`; None when its status says so already."""
    wanted = crd["spec"]["names"]
    status = crd.get("status") or {}
    accepted = status.get("acceptedNames") or {}
    if _same(wanted, accepted):
        return None
    given, conflict = _give(wanted, accepted, *_taken(crd["spec"]["group"], others))
    before = next(
        (found for found in status.get("conditions") or () if found["type"] == "NamesAccepted"), None
    )
    reason, text = conflict or ("NoConflicts", "no conflicts found")
    state = "False" if conflict else "True"
    said = (before["status"], before.get("reason"), before.get("message")) if before is not None else None
    if _same(given, accepted) and said == (state, reason, text):
        return None
    changed = {**crd, "status": {**status, "acceptedNames": given}}
    changed["status"]["conditions"] = [dict(found) for found in status.get("conditions") or ()]
    set_condition(changed, "NamesAccepted", state, reason, text, now)
    _announce(changed, accepted=not conflict, now=now)
    return changed


def set_condition(crd: CRD, type_: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition; its transition time moves only with its status."""
    conditions = crd["status"]["conditions"] = list(crd["status"].get("conditions") or ())
    entry = {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    for index, found in enumerate(conditions):
        if found["type"] == type_:
            if found["status"] == status:
                entry["lastTransitionTime"] = found["lastTransitionTime"]
            conditions[index] = entry
            return
    conditions.append(entry)


def _announce(crd: CRD, *, accepted: bool, now: str) -> None:
    """Say how far establishing has come; what is established stays so."""
    established = next(
        (found for found in crd["status"]["conditions"] if found["type"] == "Established"), None
    )
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


def _give(
    wanted: CRD, accepted: CRD, resources: set[str], kinds: set[str]
) -> tuple[CRD, tuple[str, str] | None]:
    """The names given, and the last conflict: its reason and text."""
    given = dict(accepted)
    conflict: tuple[str, str] | None = None
    for key, used in (("plural", resources), ("singular", resources), ("kind", kinds), ("listKind", kinds)):
        name = wanted.get(key, "")
        if name != accepted.get(key) and name in used:
            conflict = (f"{key[0].upper()}{key[1:]}Conflict", f'"{name}" is already in use')
        else:
            given[key] = name
    short, had = wanted.get("shortNames") or [], accepted.get("shortNames") or []
    clashes = [f'"{name}" is already in use' for name in short if name not in had and name in resources]
    if clashes:
        text = clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
        conflict = ("ShortNamesConflict", text)
    elif short:
        given["shortNames"] = short
    else:
        given.pop("shortNames", None)
    if wanted.get("categories"):
        given["categories"] = wanted["categories"]
    else:
        given.pop("categories", None)
    return given, conflict
