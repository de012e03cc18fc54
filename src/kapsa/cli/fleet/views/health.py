"""The health of operators and clusters as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kapsa.fleet.domain.health import Evidence
from kapsa.fleet.orchestrator.operator_health import OperatorOnCluster

__all__ = ["health_rows"]


def health_rows(entries: Iterable[OperatorOnCluster]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each cluster, with the first check that is not healthy."""
    for each in entries:
        yield (
            each.cluster_name,
            each.health,
            each.version,
            each.revision,
            "-" if each.controller_pods is None else each.controller_pods,
            each.webhook_status,
            each.crd_reconciliation,
            _evidence(each),
        )


def _evidence(entry: OperatorOnCluster) -> str:
    if entry.message or entry.reason:
        return f"{entry.reason}: {entry.message}".removesuffix(": ")
    bad = [check for check in entry.checks if check.evidence is not Evidence.HEALTHY]
    if bad:
        return f"{bad[0].kind}: {bad[0].message}"
    return f"{len(entry.checks)} checks passed" if entry.checks else "not checked yet"
