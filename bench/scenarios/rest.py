"""The `myapp` example at rest: resident memory with metrics and probes on."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.peer_programs import HERE, kapsa_command
from bench.planes import control_plane
from bench.results import Measurement
from bench.scenarios import Scenario
from bench.scenarios.cache import at_rest

EXAMPLE = HERE.parent / "examples" / "myapp"


async def resting(n: int, directory: Path) -> list[Measurement]:
    """n MyApps, each with its Deployment and Service; then nothing to do."""
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
    about="the myapp operator with n resources once it has nothing left to do, metrics and probes on",
    sizes=(1, 100),
    run=resting,
    needs_go=False,
)
