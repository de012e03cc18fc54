"""The sizes of a measurement of the fleet manager."""

from __future__ import annotations

import msgspec


class FleetSize(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one measurement. With 100 clusters they are the limits that the manager is specified for."""

    clusters: int
    operators: int
    """Operators that are registered."""
    installed: int
    """Operators that run on each cluster."""
    deployments: int
    """Deployments under way at any time, each of another operator. At least three."""
    clients: int
    """Clients that read, each about once a second."""
    repetitions: int = 2
    """Deployments to one cluster that follow each other, each to another one."""
    check_seconds: int = 30
    """Seconds between the health checks of a deployment: the manager's default."""
    rest_seconds: float = 60.0
    """The length of the measurement at rest: each cluster is checked once, and its operators twice."""
    limit_seconds: float = 1800.0
    """The longest time of one step, such as the registration or the load. It fails the measurement."""

    def __post_init__(self) -> None:
        if not 3 <= self.deployments <= self.installed <= self.operators:
            raise ValueError(
                "a fleet needs 3 <= deployments <= installed <= operators, "
                f"got {self.deployments}, {self.installed} and {self.operators}"
            )

    @classmethod
    def of(cls, clusters: int) -> FleetSize:
        """Return the sizes for a number of clusters: the limits of the manager at 100, and in proportion below."""
        operators = 5 * clusters
        used = min(20, operators)
        return cls(
            clusters=clusters,
            operators=operators,
            installed=used,
            deployments=used,
            clients=50,
            repetitions=min(2, clusters),
        )

    @property
    def wide(self) -> int:
        """The clusters of a deployment to several."""
        return min(10, self.clusters)

    @property
    def expected_deployments(self) -> int:
        """All deployments of one load: one to several clusters, one canary, and those to one cluster."""
        return 2 + (self.deployments - 2) * self.repetitions


def cluster_name(number: int) -> str:
    return f"cluster-{number:03}"


def operator_name(number: int) -> str:
    return f"operator-{number:03}"
