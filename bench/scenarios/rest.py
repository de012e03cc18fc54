"""The `myapp` example at rest: resident memory with metrics and probes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml

from bench.lab import HERE, control_plane
from bench.processes import running, usage
from bench.results import Measurement
from bench.scenarios import Scenario

EXAMPLE = HERE.parent / "examples" / "myapp"


async def at_rest(n: int, directory: Path) -> list[Measurement]:
    async with control_plane("embedded", directory) as bench:
        await bench.client.apply(yaml.safe_load((EXAMPLE / "crd.yaml").read_text()))
        command = [str(Path(sys.executable).parent / "kapsa"), "run", "myapp:operator"]
        with running(
            command, log=directory / "peer.log", KUBECONFIG=str(bench.kubeconfig), PYTHONPATH=str(EXAMPLE)
        ) as process:
            await asyncio.sleep(n)
            used = usage(process.pid)
    return [Measurement("at-rest", "kapsa", n, {"RSS MB": used.rss_mb, "peak RSS MB": used.peak_rss_mb})]


SCENARIO = Scenario(
    name="at-rest",
    about="the myapp operator after n idle seconds, metrics and probes on",
    sizes=(5,),
    run=at_rest,
    needs_go=False,
)
