"""The fleet manager at the sizes that it is specified for: one replica and three, at rest and under load."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from bench.fleet.limits import fleet_limits
from bench.fleet.size import FleetSize
from bench.results import Measurement, PartlyMeasured
from bench.scenarios import Scenario


async def fleet(n: int, directory: Path) -> list[Measurement]:
    """Measure managers with n clusters, in proportion to 500 operators on 100 clusters.

    Raises PartlyMeasured if three replicas fail or are stopped: one replica took half of the time.
    """
    from bench.fleet.measurement import measure_fleet  # loads the manager, which no other scenario needs

    measured: list[Measurement] = []
    try:
        async with contextlib.aclosing(measure_fleet(FleetSize.of(n), directory)) as replicas:
            async for peer, values in replicas:
                measured.append(Measurement("fleet", peer, n, values))
    except (Exception, asyncio.CancelledError) as error:
        if not measured:
            raise
        raise PartlyMeasured(measured, error) from error
    return measured


SCENARIO = Scenario(
    name="fleet",
    about="the fleet manager with n clusters, 5 n operators and 20 of them on each cluster, 20 deployments under way and 50 clients: "
    "one replica and three on one PostgreSQL; percentiles of requests as clients see them, of health checks from the histograms that "
    "the managers export, of deployments from the request to their end (a canary with soaks of a second)",
    sizes=(25, 50, 100),
    alone=5,
    rounds=1,
    expected_seconds=960,
    run=fleet,
    limits=fleet_limits(),
    needs_go=False,
)
