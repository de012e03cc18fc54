"""The start, the stop and the properties of a devcluster."""

from __future__ import annotations

import asyncio
import base64
import ssl

import aiohttp
import pytest
import yaml

from kapsa.devcluster import DevCluster, ObjectChange, Request, VirtualClock
from kapsa.devcluster.clock import run_on_virtual_time
from tests.devcluster.embedded.api import Api


async def test_a_cluster_has_a_url_and_a_kubeconfig_file_while_it_runs():
    async with DevCluster() as cluster:
        assert cluster.engine == "embedded"
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        assert config == cluster.kubeconfig_data
        assert config["clusters"][0]["cluster"]["server"] == cluster.url
        assert cluster.kubeconfig.stat().st_mode & 0o077 == 0
        async with aiohttp.ClientSession() as http, http.get(f"{cluster.url}/readyz") as ready:
            assert await ready.text() == "ok"
        path, url = cluster.kubeconfig, cluster.url
    assert not path.exists()
    with pytest.raises(aiohttp.ClientError):
        async with aiohttp.ClientSession() as http:
            await http.get(url)


async def test_a_cluster_can_serve_https_with_its_own_authority():
    async with DevCluster(tls=True, controllers=False) as cluster:
        assert cluster.url.startswith("https://")
        authority = cluster.kubeconfig_data["clusters"][0]["cluster"]["certificate-authority-data"]
        trusting = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        connector = aiohttp.TCPConnector(ssl=trusting)
        async with (
            aiohttp.ClientSession(cluster.url, connector=connector) as http,
            http.get("/readyz") as ready,
        ):
            assert await ready.text() == "ok"
        async with aiohttp.ClientSession() as distrustful:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await distrustful.get(f"{cluster.url}/readyz")


async def test_a_stopped_cluster_leaves_no_task():
    before = asyncio.all_tasks()
    async with DevCluster() as cluster, aiohttp.ClientSession() as http, http.get(f"{cluster.url}/livez"):
        pass
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_the_url_of_a_cluster_without_a_socket_raises():
    async with DevCluster(http=False) as cluster:
        with pytest.raises(RuntimeError, match="http=False"):
            _ = cluster.url
        with pytest.raises(RuntimeError, match="http=False"):
            _ = cluster.kubeconfig
        assert (await Api(cluster.server).get("/api/v1/namespaces/default")).status == 200


def test_an_unknown_engine_is_rejected():
    with pytest.raises(ValueError, match="must be 'embedded' or 'real'"):
        DevCluster(engine="imaginary")


def test_a_cluster_that_is_not_started_has_no_server():
    with pytest.raises(RuntimeError, match="no embedded server"):
        _ = DevCluster().server


async def test_many_clusters_run_at_the_same_time():
    async with DevCluster() as one, DevCluster() as two:
        assert one.url != two.url
        await Api(one.server).configmap("only-here")
        assert (await Api(two.server).get("/api/v1/namespaces/default/configmaps/only-here")).status == 404


async def test_a_test_observes_an_embedded_cluster_without_a_socket():
    async with DevCluster(http=False, controllers=False) as cluster:
        changes: list[ObjectChange] = []
        cluster.on_change(changes.append)
        revision, count = cluster.revision, cluster.count_changes(ignore={"namespaces"})
        await Api(cluster.server).configmap("one", a="1")
        assert cluster.revision == revision + 1
        assert cluster.count_changes(ignore={"namespaces"}) == count + 1
        assert cluster.count_changes(ignore={"namespaces", "configmaps"}) == count
        assert changes == [ObjectChange("ADDED", "configmaps", "default/one")]
        [stored] = [each for each in cluster.objects() if each.resource == "configmaps"]
        assert (stored.key, stored.object["data"]) == ("default/one", {"a": "1"})
        reply = await cluster.handle(Request(method="GET", path="/api/v1/namespaces/default/configmaps/one"))
        assert reply.status == 200


def test_objects_have_the_time_of_the_clusters_clock():
    async def main() -> str:
        async with DevCluster(clock=VirtualClock(), http=False, controllers=False) as cluster:
            await asyncio.sleep(3600)
            created = await Api(cluster.server).configmap("one")
            return str(created.meta["creationTimestamp"])

    assert run_on_virtual_time(main()) == "2026-01-01T01:00:00Z"


@pytest.mark.long
async def test_the_watchers_of_one_change_share_its_bytes_and_ten_thousand_objects_are_small():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with DevCluster(http=False, controllers=False) as cluster:
        api = Api(cluster.server)
        for number in range(10_000):
            await api.configmap(f"c{number}", {"app": "x"}, a="1")
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) / 1024 < 100
