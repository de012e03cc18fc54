"""Conflicts of an apply: the changed fields that other managers own, reported in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kapsa.devcluster.embedded.apply.comparison import Comparison
from kapsa.devcluster.embedded.apply.fieldset import Fields, Path, intersection, path_text, paths
from kapsa.devcluster.embedded.apply.managedfields import Managed, Manager
from kapsa.devcluster.embedded.apply.object_versions import Versions
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.go_format import quote

__all__ = ["ApplyConflict", "reject_conflicts"]

Object = dict[str, Any]


class ApplyConflict(StatusError):  # noqa: N818 - the word Kubernetes uses
    """Fields that other managers own and this configuration would change: a 409 unless it is forced."""

    def __init__(self, conflicts: Iterable[tuple[Manager, Path]]) -> None:
        self.conflicts = list(conflicts)
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_describe(manager)}",
                "field": path_text(path),
            }
            for manager, path in self.conflicts
        ]
        super().__init__(409, "Conflict", _conflict_message(self.conflicts), details={"causes": causes})


def reject_conflicts(
    managed: Managed, author: Manager, comparison: Comparison, live: Object, new: Object, versions: Versions
) -> None:
    """Raise ApplyConflict if `author`, by changing `live` to `new`, changes fields of other managers.

    `comparison` is that of the two objects in the request's version. Each manager's fields are compared in
    the version that it wrote; one that is no longer served cannot conflict.
    """
    changed: dict[str, Fields] = {versions.api_version: comparison.changed}
    conflicts: list[tuple[Manager, Path]] = []
    for manager in sorted(managed, key=lambda one: one.sort_text):
        version = managed[manager].api_version
        if manager == author:
            continue
        if version not in changed:
            there = versions.compare(live, new, version)
            changed[version] = there.changed if there else {}
        conflicts += (
            (manager, path) for path in paths(intersection(managed[manager].fields, changed[version]))
        )
    if conflicts:
        raise ApplyConflict(conflicts)


def _conflict_message(conflicts: list[tuple[Manager, Path]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_describe(manager)}: {path_text(path)}"
    lines: list[str] = []
    for manager in dict.fromkeys(manager for manager, _ in conflicts):
        lines.append(f"conflicts with {_describe(manager)}:")
        lines.extend(f"- {path_text(path)}" for owner, path in conflicts if owner == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _describe(manager: Manager) -> str:
    text = quote(manager.name)
    if manager.subresource:
        text += f" with subresource {quote(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text
