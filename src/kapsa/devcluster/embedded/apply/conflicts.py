"""Conflicts of an apply: fields that other managers own, in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.devcluster.embedded.apply.fieldset import Path, path_text
from kapsa.devcluster.embedded.apply.managedfields import Manager
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.go_format import quote

__all__ = ["ApplyConflict"]


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
