"""The completion indexes of Indexed Jobs, and their compressed text form (`0-2,5`)."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object

INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Object) -> int | None:
    """Return the completion index of a pod, or None."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdigit() else None


def compress(indexes: Iterable[int]) -> str:
    """Render indexes as text. Runs of three or more become a range, as in kube-controller-manager."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(set(indexes)), None]:
        if run and index is not None and index == run[-1] + 1:
            run.append(index)
            continue
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts.extend(str(i) for i in run)
        run = [] if index is None else [index]
    return ",".join(parts)


def expand(text: str) -> set[int]:
    """Parse the text form."""
    indexes: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes
