"""The `myapp` example at rest: resident memory with metrics and probes enabled."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.planes import control_plane
from bench.programs import HERE, kapsa_command
from bench.results import Measurement
from bench.scenarios import Scenario
from bench.scenarios.cache import at_rest

EXAMPLE = HERE.parent / "examples" / "myapp"


async def resting(n: int, directory: Path) -> list[Measurement]:
    """Measure the operator at rest with n MyApps, each with its Deployment and Service."""
    async with control_plane("embedded", directory) as bench:
        await bench.client.apply(yaml.safe_load((EXAMPLE / "crd.yaml").read_text()))
        sample = yaml.safe_load((EXAMPLE / "sample.yaml").read_text())
        for i in range(n):
            metadata = {"name": f"app-{i}", "namespace": "default"}
            await bench.client.create({**sample, "metadata": metadata})
        used = await at_rest(bench, kapsa_command("myapp:operator", EXAMPLE), directory)
    values = {"RSS MB": used["rss"], "CPU s from start to rest": used["cpu"]}
    return [Measurement("at-rest", "kapsa", n, values)]


SCENARIO = Scenario(
    name="at-rest",
    about="the myapp operator with n resources at rest, with metrics and probes enabled",
    sizes=(1, 100),
    run=resting,
    needs_go=False,
)
