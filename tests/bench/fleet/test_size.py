"""The sizes of the fleet benchmark."""

from __future__ import annotations

import pytest

from bench.fleet.size import FleetSize


def test_with_a_hundred_clusters_everything_is_at_the_limits_of_the_specification() -> None:
    size = FleetSize.of(100)
    assert (size.operators, size.installed, size.deployments, size.clients) == (500, 20, 20, 50)


@pytest.mark.parametrize("clusters", [1, 2, 3, 25, 50])
def test_smaller_fleets_are_consistent(clusters: int) -> None:
    size = FleetSize.of(clusters)
    assert size.wide <= size.clusters
    assert size.repetitions <= size.clusters
    assert size.expected_deployments >= size.deployments


def test_a_fleet_without_enough_operators_is_refused() -> None:
    with pytest.raises(ValueError, match="3 <= deployments <= installed <= operators, got 5, 4 and 5"):
        FleetSize(clusters=1, operators=5, installed=4, deployments=5, clients=1)
