"""Plan sources of a manager that has no way to render charts for clusters or to look into them.

The API accepts no deployments then, so nothing is ever planned. What asks for a plan all the same gets the reason.
"""

from kapsa.fleet.domain.clusters import ManagedCluster
from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.operators import ManagedOperator
from kapsa.fleet.orchestrator.ports.plan_sources import (
    ChartRenderRequest,
    InspectionRequest,
    LayeredValues,
    PreflightReport,
)

__all__ = ["UnavailablePlanSources"]


class UnavailablePlanSources:
    """Values, manifests and preflights that are not available."""

    async def layers(self, operator: ManagedOperator, cluster: ManagedCluster) -> LayeredValues:
        """Raise StateConflict."""
        raise _unavailable()

    async def render(self, request: ChartRenderRequest) -> bytes:
        """Raise StateConflict."""
        raise _unavailable()

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        """Raise StateConflict."""
        raise _unavailable()


def _unavailable() -> StateConflict:
    return StateConflict("this manager runs without a rollout engine, so it makes no plans")
