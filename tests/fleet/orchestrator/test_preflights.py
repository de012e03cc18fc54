"""Plans of real charts on clusters that the real helm has changed before."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.registry.operators import UploadedChart
from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy, required_approvals
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import ClusterPlan, FieldConflict, plan_digest
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.infrastructure.charts.release_renderer import StoredChartRenderer
from kapsa.fleet.infrastructure.crds.live_resources import ClusterResources
from kapsa.fleet.infrastructure.helm.gated_helm import GatedHelm
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.infrastructure.preflight.manifest_trials import DryRunTrials
from kapsa.fleet.infrastructure.preflight.release_size import release_size
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges
from kapsa.fleet.orchestrator.operator_values import RegisteredValues
from kapsa.fleet.orchestrator.planner import PlannedRollout, PlanRequest, RolloutPlanner
from kapsa.fleet.orchestrator.ports.helm import UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.preflights import ClusterPreflights
from kapsa.fleet.orchestrator.registry.adoptions import AdoptRelease
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.operators import AddVersion, RegisterOperator
from kapsa.runtime import Client, NotFound
from tests.eventually import eventually
from tests.fleet.charts import crd, operator_chart
from tests.fleet.orchestrator.conftest import Registry
from tests.fleet.orchestrator.registry.test_adoptions import install
from tests.fleet.served_kinds import served

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
RBAC = "rbac.authorization.k8s.io"
KINDS = (
    "v1/ConfigMap",
    "v1/Secret",
    "v1/Namespace",
    "rbac.authorization.k8s.io/v1/ClusterRole",
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
)


class Planning:
    """The operator `widget` on a cluster, and real plans for it."""

    def __init__(self, registry: Registry, vault: LocalVault) -> None:
        operators, trials = PostgresOperators(), DryRunTrials(registry.clients.client)
        self.registry = registry
        self.store = PostgresRollouts()
        self.preflights = ClusterPreflights(
            registry.database,
            operators,
            registry.gateway,
            registry.credentials,
            ClusterChanges(ClusterResources(registry.clients.client)),
            trials,
            registry.audit,
        )
        self.planner = RolloutPlanner(
            RegisteredValues(registry.database, OperatorSecrets(operators, vault), registry.adoptions),
            StoredChartRenderer(registry.database, operators, trials.api_versions),
            self.preflights,
        )

    async def register(self, kubeconfig: str, *archives: bytes) -> None:
        request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig)
        await self.registry.clusters.register(ADMIN, request)
        source = UploadedChart("widget")
        await self.registry.operators.register(
            ADMIN, RegisterOperator("widget", "widgets", source, archive=archives[0])
        )
        for each in archives[1:]:
            await self.registry.operators.add_version(ADMIN, "widget", AddVersion(archive=each))

    async def plan(self, version: str, **changes: Any) -> PlannedRollout:
        cluster = await self.registry.clusters.get(ADMIN, "dev-1")
        operator = await self.registry.operators.get(ADMIN, "widget")
        async with self.registry.database.transaction() as connection:
            chosen = await PostgresOperators().version(connection, operator.id, version)
            installation = await self.store.installation(connection, cluster.id, operator.id)
        assert chosen is not None
        request = PlanRequest(
            operator=operator,
            version=chosen,
            strategy=CanaryStrategy(),
            clusters=(cluster,),
            installations={cluster.id: installation} if installation else {},
            **changes,
        )
        return await self.planner.plan(request)

    async def conflicts(self, planned: PlannedRollout) -> tuple[FieldConflict, ...]:
        """Return the fields of what was planned that others own by now."""
        plan = only(planned)
        cluster = await self.registry.clusters.get(ADMIN, "dev-1")
        return await self.preflights.conflicts(cluster, plan.next, planned.bundles[plan.cluster_id].manifest)

    async def carry_out(self, planned: PlannedRollout) -> None:
        """Let the real helm apply what was planned."""
        plan, (cluster,) = planned.plan, planned.plan.clusters
        bundle = planned.bundles[cluster.cluster_id]
        registry = self.registry
        helm = GatedHelm(registry.database, PostgresOperators(), registry.clients.client, registry.audit)
        request = UpgradeRequest(
            cluster.cluster_id,
            cluster.next,
            plan.chart_digest,
            bundle.manifest,
            bundle.values,
            {"example.com/made-by": "test"},
            "a test",
            plan.on_conflict,
        )
        try:
            await helm.upgrade(request, LeaseGuard(time.monotonic() + 600, time.monotonic))
        finally:
            await helm.close()

    async def take_back(self, planned: PlannedRollout) -> None:
        """Let the real helm return to the revision before what was planned."""
        (cluster,) = planned.plan.clusters
        registry = self.registry
        helm = GatedHelm(registry.database, PostgresOperators(), registry.clients.client, registry.audit)
        guard = LeaseGuard(time.monotonic() + 600, time.monotonic)
        release, revision = cluster.next, cluster.present_revision
        try:
            await helm.rollback(cluster.cluster_id, release, revision, guard, left=cluster.conflicts)
        finally:
            await helm.close()


@pytest.fixture
def planning(registry: Registry, vault: LocalVault) -> Planning:
    return Planning(registry, vault)


def only(planned: PlannedRollout) -> ClusterPlan:
    (cluster,) = planned.plan.clusters
    return cluster


async def objects(cluster: DevCluster) -> dict[str, str]:
    """Return the resource version of each object that the release could have touched."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        return {
            f"{kind} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}": each["metadata"][
                "resourceVersion"
            ]
            for kind in KINDS
            for each in (await client.list(kind)).items
            if not each["metadata"].get("namespace", "").startswith("kube-")
        }


async def test_an_adopted_release_has_a_plan_without_changes_and_no_object_was_touched(
    planning: Planning, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path
) -> None:
    # Helm installs it with what the cluster serves, which a render without a cluster does not know.
    seen = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seen}\ndata:\n"
        "  version: {{ .Capabilities.KubeVersion.Version | quote }}\n"
        '  gadgets: {{ .Capabilities.APIVersions.Has "example.org/v1/Gadget" | quote }}\n'
    )
    files = {"templates/seen.yaml": seen}
    old = operator_chart("1.0.0", files)
    new = operator_chart("1.1.0", {**files, "values.yaml": "replicas: 4\n"})
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        await client.create(crd("gadgets", "example.org"))
        await eventually(lambda: served(client, "example.org/v1/Gadget"), bool, "the kind to be served")
    await install(secure_cluster, tmp_path, old, "--set", "password=hunter2-secret")
    await planning.register(kubeconfig, old, new)
    before = await objects(secure_cluster)
    await planning.registry.clusters.adopt(ADMIN, "dev-1", AdoptRelease("widget"))
    same, upgrade = only(await planning.plan("1.0.0")), only(await planning.plan("1.1.0"))
    assert await objects(secure_cluster) == before
    assert b'gadgets: "true"' in (await planning.plan("1.0.0")).bundles[same.cluster_id].manifest
    assert (same.present_revision, same.present_version) == (1, "1.0.0")
    assert (same.diff, same.problems, same.conflicts, same.notices) == ("", (), (), ())
    assert same.present_chart.startswith("sha256:")
    assert "-  replicas: '1'\n+  replicas: '4'" in upgrade.diff
    assert upgrade.diff.count("\n+++ ") == 1
    assert (upgrade.problems, upgrade.conflicts) == ((), ())
    trials = [each for each in planning.registry.audit.entries if each.action == "cluster.preflight"]
    assert len(trials) == 3
    assert "dev-1" not in str([each.payload for each in trials]), (
        "an entry after a deletion would keep the name"
    )
    stored = await _stored_size(secure_cluster)
    manifest = (await planning.plan("1.0.0")).bundles[same.cluster_id].manifest
    assert release_size(old, {"password": "hunter2-secret"}, manifest) == pytest.approx(stored, abs=1000)
    await planning.registry.clusters.delete(ADMIN, "dev-1")


async def _stored_size(cluster: DevCluster) -> int:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        secret = await client.get("v1/Secret", "sh.helm.release.v1.widget.v1", namespace="widgets")
    return len(secret["data"]["release"]) * 3 // 4


TUNED = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tuned}\n"
    "data: {replicas: {{ .Values.replicas | quote }}, level: {{ .Chart.Version | quote }}}\n"
)


async def data(cluster: DevCluster) -> dict[str, str]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        live = await client.get("v1/ConfigMap", "tuned", namespace="widgets")
    return dict(live["data"])


async def tune(cluster: DevCluster, **changes: str | None) -> dict[str, str]:
    """Change the object as a person does. Return what it has then."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.patch(
            "v1/ConfigMap", "tuned", {"data": changes}, namespace="widgets", field_manager="tuner"
        )
    return await data(cluster)


async def owner(cluster: DevCluster) -> str:
    """Return the only field manager of the field that a person has tuned."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        live = await client.get("v1/ConfigMap", "tuned", namespace="widgets")
    managers = {
        each["manager"]
        for each in live["metadata"]["managedFields"]
        if "f:replicas" in each["fieldsV1"].get("f:data", {})
    }
    return ",".join(sorted(managers))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("server_side", ["true", "false"])
async def test_nothing_changes_under_fail_all_but_the_field_under_leave_and_the_field_under_take(
    planning: Planning, secure_cluster: DevCluster, kubeconfig: str, tmp_path: Path, server_side: str
) -> None:
    versions = ("1.0.0", "1.1.0")
    old, new = (operator_chart(each, {"templates/tuned.yaml": TUNED}) for each in versions)
    await install(secure_cluster, tmp_path, old, f"--server-side={server_side}")
    await planning.register(kubeconfig, old, new)
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        patch = {"data": {"replicas": "9"}}
        await client.patch("v1/ConfigMap", "tuned", patch, namespace="widgets", field_manager="tuner")
    before = await objects(secure_cluster)
    failed = only(await planning.plan("1.1.0"))
    conflict = FieldConflict("ConfigMap widgets/tuned", ".data.replicas", "tuner")
    assert failed.conflicts == (conflict,)
    assert [each.message for each in failed.problems] == [
        ".data.replicas of ConfigMap widgets/tuned is owned by tuner"
    ]
    assert await objects(secure_cluster) == before

    leave = await planning.plan("1.1.0", on_conflict=ConflictPolicy.LEAVE)
    assert (only(leave).conflicts, only(leave).problems) == ((conflict,), ())
    assert only(leave).notices == ()
    again = await planning.plan(
        "1.1.0", on_conflict=ConflictPolicy.LEAVE, earlier=leave.plan, bundles=leave.bundles
    )
    assert (plan_digest(again.plan), again.bundles) == (plan_digest(leave.plan), leave.bundles)
    take = await planning.plan("1.1.0", on_conflict=ConflictPolicy.TAKE)
    assert [await planning.conflicts(each) for each in (leave, take)] == [(), (conflict,)]
    assert await tune(secure_cluster, level="debug") == {"replicas": "9", "level": "debug"}
    later = FieldConflict("ConfigMap widgets/tuned", ".data.level", "tuner")
    assert [set(await planning.conflicts(each)) for each in (leave, take)] == [{later}, {later, conflict}]
    assert await tune(secure_cluster, level=None) == {"replicas": "9"}
    assert [await planning.conflicts(each) for each in (leave, take)] == [(), (conflict,)]
    await planning.carry_out(leave)
    assert await data(secure_cluster) == {"replicas": "9", "level": "1.1.0"}
    await planning.take_back(leave)
    assert await data(secure_cluster) == {"replicas": "9", "level": "1.0.0"}
    assert await owner(secure_cluster) == "tuner"

    take = await planning.plan("1.1.0", on_conflict=ConflictPolicy.TAKE)
    assert (only(take).conflicts, only(take).problems) == ((conflict,), ())
    await planning.carry_out(take)
    assert await data(secure_cluster) == {"replicas": "1", "level": "1.1.0"}
    assert not only(await planning.plan("1.1.0")).conflicts
    await planning.registry.clusters.delete(ADMIN, "dev-1")


async def deleted_crd(client: Client) -> bool:
    """Delete the CRD of Widgets, and return whether it is gone: control planes of the real engine are shared."""
    try:
        await client.delete("apiextensions.k8s.io/v1/CustomResourceDefinition", "widgets.example.com")
    except NotFound:
        return True
    return False


async def test_a_narrowed_bound_that_needs_no_approval_says_why_in_the_plan(
    planning: Planning, secure_cluster: DevCluster, kubeconfig: str
) -> None:
    narrowed = crd()
    spec = narrowed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["maximum"] = 3
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        await eventually(lambda: deleted_crd(client), bool, "the CRD of another test to be gone")
        await client.create(crd())
        await eventually(lambda: served(client, "example.com/v1/Widget"), bool, "the kind to be served")
    await planning.register(kubeconfig, operator_chart("1.0.0", {"crds/widgets.json": json.dumps(narrowed)}))
    cluster = only(await planning.plan("1.0.0"))
    assert [each.findings for each in cluster.crds] == [("warning bound-tightened v1:spec.size",)]
    assert required_approvals((await planning.plan("1.0.0")).plan, ApprovalPolicy()) == ()
    (notice,) = cluster.notices
    assert notice.startswith("widgets.example.com v1:spec.size: maximum 3 is new")
    assert "needs no approval as a breaking change, because Kubernetes v1." in notice
    await planning.registry.clusters.delete(ADMIN, "dev-1")


async def test_a_chart_that_does_not_support_the_cluster_is_a_problem_of_that_cluster(
    planning: Planning, kubeconfig: str
) -> None:
    await planning.register(kubeconfig, operator_chart("1.0.0", kubeVersion=">=1.37.0"))
    (problem,) = only(await planning.plan("1.0.0")).problems
    assert problem.check == "KubeVersion"
    assert "widget 1.0.0 needs Kubernetes >=1.37.0, and the cluster has v1." in problem.message
    await planning.registry.clusters.delete(ADMIN, "dev-1")


async def test_rights_that_helm_needs_and_the_manager_lacks_are_named(
    planning: Planning, secure_cluster: DevCluster, kubeconfig: str
) -> None:
    await planning.register(kubeconfig, operator_chart("1.0.0"))
    assert only(await planning.plan("1.0.0")).problems == ()
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        (binding,) = [
            each
            for each in (await client.list(f"{RBAC}/v1/ClusterRoleBinding")).items
            if (each["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "kapsa-fleet"
        ]
        rules = [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": ["", "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        ]
        metadata = {"name": "limited"}
        role = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules,
        }
        limited = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "limited"},
            "subjects": binding["subjects"],
        }
        await client.create(role)
        await client.create(limited)
        await client.delete(
            f"{RBAC}/v1/ClusterRoleBinding", binding["metadata"]["name"], propagation="Orphan"
        )

        async def problems() -> set[str]:
            return {f"{each.check}: {each.message}" for each in only(await planning.plan("1.0.0")).problems}

        named = await eventually(problems, bool, "the rights to be gone")
    (missing,) = [each for each in named if "lacks" in each]
    assert missing == (
        'Rights: the account of this manager lacks {apiGroups: ["rbac.authorization.k8s.io"], '
        'resources: ["clusterroles"], verbs: ["create", "patch", "delete"]} in a ClusterRole'
    )
    assert all(each.startswith("Rights: ") for each in named)
