"""The real control plane on a machine without a network: only the loopback interface, and no route."""

import asyncio
import sys

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

_ALONE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command in a network namespace of its own."""

_START = """
import asyncio
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client

async def main():
    async with DevCluster(engine="real") as cluster:
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            print(*(each["metadata"]["name"] for each in (await client.list("v1/Namespace")).items))

asyncio.run(main())
"""


async def run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *_ALONE, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_a_control_plane_starts_on_a_machine_without_a_default_route() -> None:
    code, output = await run("true")
    if code:
        pytest.skip(f"this machine does not let its users make network namespaces: {output.strip()}")
    code, output = await run(sys.executable, "-c", _START)
    assert code == 0, output
    assert "kube-system" in output
