"""The API server restarts under a running operator, on both engines."""

from functools import partial

import pytest

from kapsa.devcluster import DevCluster
from kapsa.devcluster.cluster import EngineName
from kapsa.runtime import AlreadyExists, Client, ClientError, Operator, custom_resource_definition
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app

PATIENCE = 180.0
"""Seconds that each step may take: only a failure waits that long."""


@pytest.mark.timeout(600)
async def test_an_operator_goes_on_after_the_api_server_restarted(engine: EngineName) -> None:
    async with (
        DevCluster(engine=engine, controllers=False) as cluster,
        Client.connect(kubeconfig=cluster.kubeconfig) as client,
    ):
        await client.create(custom_resource_definition([App]))
        recorder = Recorder()
        operator = Operator(controllers=[recorder], metrics_port=None, health_port=None)
        async with operator.running(client):
            await reconciled(client, recorder, "before")
            await cluster.restart_api_server(pause=0.5)
            await reconciled(client, recorder, "after")


async def reconciled(client: Client, recorder: Recorder, name: str) -> None:
    """Create a resource as soon as the server accepts it, and wait until it has been reconciled."""

    async def runs() -> list[str]:
        return recorder.runs

    await eventually(partial(create, client, name), bool, "a server that answers", seconds=PATIENCE)
    await eventually(runs, lambda names: name in names, f"a run of {name}", seconds=PATIENCE)


async def create(client: Client, name: str) -> bool:
    try:
        await client.create(app(name))
    except AlreadyExists:
        return True
    except ClientError:
        return False
    return True


async def test_a_cluster_without_a_socket_has_no_api_server_to_restart() -> None:
    async with DevCluster(http=False) as cluster:
        with pytest.raises(RuntimeError, match="no API server to restart"):
            await cluster.restart_api_server()
