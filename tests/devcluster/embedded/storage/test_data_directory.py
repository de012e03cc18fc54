"""A data directory: the state of a cluster outlives its process, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster, Request, RequestUser
from kapsa.devcluster.embedded.storage import journal
from kapsa.devcluster.errors import DataDamaged, DataInUse, DataNotWritable
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, WIDGET_DEFINITION, WIDGETS, Api, configmap
from tests.eventually import eventually


def cluster_in(directory: Path, *, controllers: bool = False, seed: int | None = None) -> DevCluster:
    return DevCluster(data=directory, http=False, controllers=controllers, seed=seed)


async def test_objects_keep_their_uids_versions_and_fields(tmp_path: Path):
    data = tmp_path / "new" / "data"
    async with cluster_in(data) as cluster:
        api = Api(cluster.server)
        await api.configmap("one", {"app": "x"}, a="1")
        await api.merge(f"{CONFIGMAPS}/one", {"data": {"b": "2"}})
        await api.configmap("gone")
        await api.delete(f"{CONFIGMAPS}/gone")
        before = {(each.resource, each.key): each.object for each in cluster.objects()}
        revision = cluster.revision
    async with cluster_in(data) as cluster:
        assert {(each.resource, each.key): each.object for each in cluster.objects()} == before
        assert cluster.revision == revision
        listed = await Api(cluster.server).get(CONFIGMAPS, labelSelector="app=x")
        assert listed.names == ["one"]
        assert listed.revision == revision
        assert (await Api(cluster.server).configmap("next")).revision == revision + 1


async def test_revisions_before_the_restart_are_gone_and_the_last_one_can_be_watched(tmp_path: Path):
    async with cluster_in(tmp_path) as cluster:
        old = (await Api(cluster.server).configmap("one")).revision
        last = (await Api(cluster.server).configmap("two")).revision
    async with cluster_in(tmp_path) as cluster:
        api = Api(cluster.server)
        async with api.watch(CONFIGMAPS, resourceVersion=str(last)) as watch:
            await api.configmap("three")
            assert await watch.take(1) == [("ADDED", "three")]
        for path in (CONFIGMAPS, "/api/v1/namespaces/default/secrets"):
            async with api.watch(path, resourceVersion=str(old)) as watch:
                event = await watch.next()
                assert event is not None
                assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            answer = await api.get(path, resourceVersion=str(old), resourceVersionMatch="Exact")
            assert (answer.status, answer.body["reason"]) == (410, "Expired")


async def test_definitions_are_served_again_with_their_objects_and_rewritten_defaults(tmp_path: Path):
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": 1},
    }
    async with cluster_in(tmp_path) as cluster:
        api = Api(cluster.server)
        crd = await api.post(CRDS, WIDGET_DEFINITION)
        assert (await api.post(WIDGETS, widget)).status == 201
        spec = crd.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["color"]["default"] = "red"
        spec["default"] = {}
        current = await api.get(f"{CRDS}/widgets.example.com")
        crd.body["metadata"] = current.body["metadata"]
        assert (await api.put(f"{CRDS}/widgets.example.com", crd.body)).status == 200
        before = (await api.get(f"{WIDGETS}/w")).body
        assert before["spec"] == {"size": 1, "color": "red"}
    async with cluster_in(tmp_path) as cluster:
        assert (await Api(cluster.server).get(f"{WIDGETS}/w")).body == before


async def test_addresses_of_services_stay_theirs(tmp_path: Path):
    services = "/api/v1/namespaces/default/services"

    def service(name: str, **spec: object) -> dict[str, object]:
        ports = [{"port": 80}]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": ports, **spec},
        }

    async with cluster_in(tmp_path) as cluster:
        first = await Api(cluster.server).post(services, service("first"))
    async with cluster_in(tmp_path) as cluster:
        ip = first.body["spec"]["clusterIP"]
        taken = await Api(cluster.server).post(services, service("second", clusterIP=ip))
        assert taken.status == 422
        assert "provided IP is already allocated" in taken.message


async def test_controllers_continue_where_they_stopped(tmp_path: Path):
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    async with cluster_in(tmp_path) as cluster:
        assert (await Api(cluster.server).post(deployments, body)).status == 201
    async with cluster_in(tmp_path, controllers=True) as cluster:
        api = Api(cluster.server)

        async def ready() -> int:
            return int((await api.get(f"{deployments}/web")).body["status"].get("readyReplicas", 0))

        await eventually(ready, lambda count: count == 2, "two ready replicas")
        pods = {
            each.key: each.object["metadata"]["uid"] for each in cluster.objects() if each.resource == "pods"
        }
    async with cluster_in(tmp_path, controllers=True) as cluster:
        await asyncio.sleep(0.2)
        kept = {
            each.key: each.object["metadata"]["uid"] for each in cluster.objects() if each.resource == "pods"
        }
        assert kept == pods


async def test_roles_and_the_address_of_the_server_hold_after_a_restart(tmp_path: Path):
    path = "/api/v1/namespaces/default/endpoints/kubernetes"
    viewer = RequestUser(username="eve", groups=("system:authenticated",))
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "eve"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    async with DevCluster(data=tmp_path) as cluster:
        assert (await Api(cluster.server).post(bindings, binding)).status == 201
    async with DevCluster(data=tmp_path) as cluster:
        reply = await cluster.handle(Request(method="GET", path=CONFIGMAPS, user=viewer))
        assert reply.status == 200
        endpoints = (await Api(cluster.server).get(path)).body
        assert str(endpoints["subsets"][0]["ports"][0]["port"]) == cluster.url.rpartition(":")[2]


async def test_a_seed_gives_no_uid_twice(tmp_path: Path):
    uids = set()
    for name in ("one", "two", "three"):
        async with cluster_in(tmp_path, seed=1) as cluster:
            uids.add((await Api(cluster.server).configmap(name)).meta["uid"])
    assert len(uids) == 3


async def test_the_file_stays_bounded_while_an_object_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journal, "_SLACK", 64 * 1024)
    async with cluster_in(tmp_path) as cluster:
        api = Api(cluster.server)
        await api.configmap("one", a="x" * 1000)
        live = (tmp_path / "journal").stat().st_size
        for number in range(500):
            await api.merge(f"{CONFIGMAPS}/one", {"data": {"n": str(number)}})
            assert (tmp_path / "journal").stat().st_size < 3 * live + 2 * 64 * 1024
        revision = cluster.revision
    async with cluster_in(tmp_path) as cluster:
        assert cluster.revision == revision
        assert (await Api(cluster.server).get(f"{CONFIGMAPS}/one")).body["data"]["n"] == "499"


async def test_a_record_that_a_crash_cut_off_is_dropped(tmp_path: Path):
    async with cluster_in(tmp_path) as cluster:
        await Api(cluster.server).configmap("kept")
        size = (tmp_path / "journal").stat().st_size
        await Api(cluster.server).configmap("cut")
    whole = (tmp_path / "journal").read_bytes()
    for end in (size, size + 1, size + 9, len(whole) - 1):
        (tmp_path / "journal").write_bytes(whole[:end])
        async with cluster_in(tmp_path) as cluster:
            api = Api(cluster.server)
            assert (await api.get(CONFIGMAPS)).names == ["kept"]
            await api.configmap("new")
        async with cluster_in(tmp_path) as cluster:
            assert (await Api(cluster.server).get(CONFIGMAPS)).names == ["kept", "new"]


@pytest.mark.parametrize("offset", [0, 25, 200, -5])
async def test_a_damaged_file_is_one_error_that_names_it(tmp_path: Path, offset: int):
    async with cluster_in(tmp_path) as cluster:
        await Api(cluster.server).configmap("one")
    file = tmp_path / "journal"
    data = bytearray(file.read_bytes())
    data[offset] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(DataDamaged) as caught:
        await cluster_in(tmp_path).start()
    assert str(caught.value).startswith(f"{file} is damaged at byte ")
    assert str(caught.value).endswith(f"or remove {tmp_path} to start with an empty cluster")
    assert file.read_bytes() == bytes(data), "a damaged file is left as it is"


async def test_a_second_cluster_in_the_same_directory_is_refused(tmp_path: Path):
    async with cluster_in(tmp_path):
        with pytest.raises(DataInUse, match=rf"{tmp_path} is used by process {os.getpid()} \("):
            await cluster_in(tmp_path).start()
    async with cluster_in(tmp_path):
        pass


async def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("done")
    with pytest.raises(DataNotWritable, match="is not empty and was not made by a devcluster"):
        await cluster_in(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataNotWritable, match="cannot be used as a data directory: File exists"):
        await cluster_in(tmp_path / "thesis.txt").start()


async def test_a_change_that_cannot_be_written_is_refused_and_leaves_no_trace(tmp_path: Path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        async with cluster_in(tmp_path) as cluster:
            api = Api(cluster.server)
            # The limit is on any file: the output of this test must stay far below it.
            await api.configmap("one", a="x" * 500_000)
            size = (tmp_path / "journal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
            failed = await api.post(CONFIGMAPS, configmap("two", a="x" * 1000))
            assert failed.status == 500
            assert "cannot be written" in failed.message
            assert (await api.get(CONFIGMAPS)).names == ["one"]
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            await api.configmap("three")
        async with cluster_in(tmp_path) as cluster:
            assert (await Api(cluster.server).get(CONFIGMAPS)).names == ["one", "three"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_data_directory_belongs_to_the_embedded_engine():
    with pytest.raises(ValueError, match="the real one has no data directory"):
        DevCluster(engine="real", data="x")


WRITER = """
import asyncio, sys
from kapsa.devcluster import DevCluster, Request, RequestUser
from tests.devcluster.embedded.api import Api
async def main():
    async with DevCluster(data=sys.argv[1], http=False, controllers=False) as cluster:
        for number in range(100_000):
            await Api(cluster.server).configmap(f"c{number:06}")
            print(number, flush=True)
asyncio.run(main())
"""


def write_until_killed(directory: Path) -> int:
    """Create objects in another process, kill it, and return the number of the last one acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 200:
                break
        process.kill()
        rest = process.stdout.read().splitlines()
    return int(rest[-1]) if rest else int(line)


async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path):
    last = await asyncio.to_thread(write_until_killed, tmp_path)
    async with cluster_in(tmp_path) as cluster:
        names = (await Api(cluster.server).get(CONFIGMAPS)).names
    assert names[: last + 1] == [f"c{number:06}" for number in range(last + 1)]
    assert len(names) <= last + 2


async def test_only_the_owner_can_read_the_objects_in_a_directory_that_others_can_read(tmp_path: Path):
    tmp_path.chmod(0o755)
    async with cluster_in(tmp_path) as cluster:
        await Api(cluster.server).configmap("one")
        assert (tmp_path / "journal").stat().st_mode & 0o077 == 0
