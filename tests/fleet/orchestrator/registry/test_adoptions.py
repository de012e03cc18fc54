"""Inventories of releases that the real helm has made, and their adoption."""

from __future__ import annotations

import asyncio
import base64
import gzip
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster, FaultPlan
from kapsa.fleet.domain.errors import InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.registry.inventory import ForeignManager
from kapsa.fleet.domain.registry.operators import UploadedChart
from kapsa.fleet.orchestrator.registry.adoptions import AdoptRelease
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster
from kapsa.fleet.orchestrator.registry.operators import RegisterOperator
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.charts import crd, operator_chart
from tests.fleet.orchestrator.conftest import Registry

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
VIEWER = Principal("victor", frozenset({Role.VIEWER}))
PASSWORD = "hunter2-very-secret"
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


async def install(
    cluster: DevCluster,
    directory: Path,
    archive: bytes,
    *options: str,
    name: str = "widget",
    namespace: str = "widgets",
) -> None:
    """Install a chart by the real helm, as a person does."""
    chart = directory / "chart.tgz"
    chart.write_bytes(archive)
    helm = await asyncio.to_thread(find_tool, "helm")
    process = await asyncio.create_subprocess_exec(
        str(helm.path), "upgrade", "--install", name, str(chart), "-n", namespace, "--create-namespace", *options,
        env={"HOME": str(directory), "KUBECONFIG": str(cluster.kubeconfig), "PATH": ""},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def _is_established(manifest: dict[str, Any]) -> bool:
    conditions = manifest.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def register(registry: Registry, kubeconfig: str, archive: bytes) -> None:
    await registry.clusters.register(ADMIN, RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig))
    source = UploadedChart("widget")
    await registry.operators.register(ADMIN, RegisterOperator("widget", "widgets", source, archive=archive))


async def test_a_release_of_helm_is_in_the_inventory_and_adopted_without_a_change(
    registry: Registry, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path
) -> None:
    archive = operator_chart("1.0.0")
    await install(secure_cluster, tmp_path, archive, "--set", f"replicas=2,password={PASSWORD}")
    await install(secure_cluster, tmp_path, archive, "--set", f"replicas=3,password={PASSWORD}")
    await register(registry, kubeconfig, archive)
    inventory = await registry.clusters.releases(VIEWER, "dev-1")
    (release,) = [each for each in inventory.releases if each.namespace == "widgets"]
    assert (release.name, release.revision, release.status) == ("widget", 2, "deployed")
    assert (release.chart, release.chart_version, release.ours, release.manager) == (
        "widget",
        "1.0.0",
        False,
        None,
    )
    (installed,) = [each for each in inventory.crds if each.name == "widgets.example.com"]
    assert (installed.kind, installed.scope, installed.stored_versions) == ("Widget", "Namespaced", ("v1",))
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        before = (await client.list("v1/ConfigMap", namespace="widgets")).items
        plan = await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget", dry_run=True))
        assert (plan.revision, plan.version, plan.differences, plan.adopted) == (2, "1.0.0", (), False)
        assert "cluster.adopt" not in registry.audit.actions()
        adopted = await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
        assert adopted.adopted
        assert (await client.list("v1/ConfigMap", namespace="widgets")).items == before
    cluster = await registry.clusters.get(ADMIN, "dev-1")
    operator = await registry.operators.get(ADMIN, "widget")
    async with registry.database.transaction() as connection:
        adoption = await registry.adoptions.stored(connection, cluster.id, operator.id)
    values = await registry.adoptions.open_values(adoption)
    assert values == {"replicas": 3, "password": PASSWORD}
    assert PASSWORD not in repr(adopted) + repr(registry.audit.entries) + repr(inventory)
    with pytest.raises(StateConflict, match="installations"):
        await registry.operators.delete(ADMIN, "widget")
    await registry.clusters.delete(ADMIN, "dev-1")
    await registry.operators.delete(ADMIN, "widget")


async def test_an_adoption_writes_to_no_object_of_the_cluster(registry: Registry, tmp_path: Path) -> None:
    requests = FaultPlan()
    archive = operator_chart("1.0.0")
    async with DevCluster(tls=True, faults=requests) as cluster:
        await install(cluster, tmp_path, archive)
        await register(registry, Path(cluster.kubeconfig).read_text(), archive)
        begin = len(requests.records)
        for dry_run in (True, False):
            await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget", dry_run=dry_run))
        seen = requests.records[begin:]
        assert any(record.resource == "secrets" for record in seen), "the release was read"
        assert [record for record in seen if record.is_write] == []
        await registry.clusters.delete(ADMIN, "dev-1")
        assert [record for record in requests.records if record.verb == "delete"], "other writes are recorded"


async def test_a_release_of_another_chart_or_version_is_not_adopted(
    registry: Registry, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path
) -> None:
    await register(registry, kubeconfig, operator_chart("1.0.0"))
    with pytest.raises(UnknownObject, match="no Helm release widgets/widget"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    with pytest.raises(InvalidInput, match="no operator 'other'"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("other"))
    with pytest.raises(NotAllowed):
        await registry.clusters.adopt(VIEWER, "dev-1", AdoptRelease("widget"))
    await install(secure_cluster, tmp_path, operator_chart("1.1.0"))
    with pytest.raises(StateConflict, match=r"widget 1\.1\.0, which is not registered"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    changed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n"
    await install(secure_cluster, tmp_path, operator_chart("1.0.0", {"templates/extra.yaml": changed}))
    with pytest.raises(StateConflict, match="ConfigMap widgets/extra is only in the release"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    plan = await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget", dry_run=True))
    assert plan.differences == ("ConfigMap widgets/extra is only in the release",)
    await registry.clusters.delete(ADMIN, "dev-1")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("patch", "manager"),
    [
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "widget", "helm.toolkit.fluxcd.io/namespace": "flux"}},
            r"Flux \(HelmRelease flux/widget\)",
        ),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:widgets/x"}},
            r"Argo CD \(Application shop\)",
        ),
        ({"labels": {"olm.owner": "widget.v1", "olm.owner.kind": "ClusterServiceVersion"}}, "OLM"),
    ],
)
async def test_a_release_that_another_controller_manages_is_refused_by_its_name(
    registry: Registry, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path, patch: Any, manager: str
) -> None:
    archive = operator_chart("1.0.0")
    await install(secure_cluster, tmp_path, archive)
    await register(registry, kubeconfig, archive)
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        await client.patch("v1/ConfigMap", "widget-widget", {"metadata": patch}, namespace="widgets")
    with pytest.raises(StateConflict, match=f"managed by {manager}"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_flux_is_named_for_a_release_that_a_helmrelease_describes(
    registry: Registry, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path
) -> None:
    archive = operator_chart("1.0.0")
    await install(secure_cluster, tmp_path, archive)
    kind = crd("helmreleases", "helm.toolkit.fluxcd.io")
    kind["spec"]["names"] |= {"kind": "HelmRelease", "listKind": "HelmReleaseList"}
    kind["spec"]["versions"][0] |= {
        "name": "v2",
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        name = (await client.create(kind))["metadata"]["name"]
        release = {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "widget", "namespace": "widgets"},
            "spec": {},
        }
        await eventually(lambda: client.get(CRD, name), _is_established, "an established CRD")
        await client.create(release)
    await register(registry, kubeconfig, archive)
    (entry,) = [
        each
        for each in (await registry.clusters.releases(VIEWER, "dev-1")).releases
        if each.namespace == "widgets"
    ]
    assert entry.manager == ForeignManager("Flux", "HelmRelease widgets/widget")
    with pytest.raises(StateConflict, match="managed by Flux"):
        await registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_forged_release_records_are_reported_and_cost_little(
    registry: Registry, secure_cluster: DevCluster, kubeconfig: str
) -> None:
    bomb = base64.b64encode(base64.b64encode(gzip.compress(b" " * (60 * 1024 * 1024)))).decode()
    junk = base64.b64encode(b"junk").decode()
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "forged"}})
        for name, release, secret_type in (
            ("bomb", bomb, "helm.sh/release.v1"),
            ("junk", junk, "helm.sh/release.v1"),
            ("other", junk, "Opaque"),
        ):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": f"sh.helm.release.v1.{name}.v1",
                    "namespace": "forged",
                    "labels": {"owner": "helm", "name": name, "version": "1"},
                },
                "type": secret_type,
                "data": {"release": release},
            }
            await client.create(secret)
    await registry.clusters.register(ADMIN, RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig))
    inventory = await registry.clusters.releases(VIEWER, "dev-1", refresh=True)
    entries = [(each.name, each.status) for each in inventory.releases if each.namespace == "forged"]
    assert entries == [("bomb", "unreadable"), ("junk", "unreadable")]
    assert any("unpacks to more than" in problem for problem in inventory.problems)
    await registry.clusters.delete(ADMIN, "dev-1")
