"""The operator of many clusters: a resource is served in the cluster that has it, whatever engine that runs on."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from examples.website.website import Website, operator
from kapsa.devcluster import DevCluster
from kapsa.runtime import MemberCluster, Operator, StaticClusters, rbac_manifests, to_yaml
from kapsa.runtime.testing import Harness
from tests.examples.namespaced_harness import NamespacedHarness

HOME_RBAC = Path(__file__).parents[2] / "examples" / "website" / "rbac-home.yaml"


def in_clusters(**members: NamespacedHarness) -> Operator:
    """Return the operator of the example, for these clusters instead of a directory of kubeconfigs."""

    def cluster(member: NamespacedHarness) -> MemberCluster:
        return MemberCluster(lambda clock: member.inner.connect("operator", clock=clock))

    return Operator(
        controllers=operator.controllers,
        clusters=StaticClusters({name: cluster(member) for name, member in members.items()}),
        leader_election=operator.leader_election,
    )


async def variables(member: NamespacedHarness, name: str) -> dict[str, Any]:
    """Wait for the Deployment of a website, and return its environment."""
    deployment = await member.exists("apps/v1/Deployment", name)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.mark.timeout(300)
async def test_a_website_runs_in_each_cluster_that_has_it(harness: NamespacedHarness) -> None:
    async with contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(DevCluster(clock=harness.inner.clock, http=False))
        second = NamespacedHarness(Harness(other, clock=harness.inner.clock), harness.namespace)
        stack.push_async_callback(second.inner.close)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": harness.namespace}}
        await second.client.create(namespace)
        both = in_clusters(eu=harness, us=second)
        await second.install(both)
        await harness.run(both)
        stack.push_async_callback(harness.inner.stop)  # before the clusters go
        for member in (harness, second):
            await member.apply(Website, "shop", image="nginx:1.29", replicas=1)
        await second.apply(Website, "blog", image="nginx:1.29", replicas=1)
        assert await variables(harness, "shop") == {"CLUSTER": "eu"}
        assert await variables(second, "shop") == {"CLUSTER": "us"}
        assert await variables(second, "blog") == {"CLUSTER": "us"}
        ready = await harness.condition(Website, "shop", "Ready", "True")
        assert (ready.status.cluster, ready.status.ready_replicas) == ("eu", 1)
        assert await harness.get("apps/v1/Deployment", "blog") is None


def test_the_rights_in_its_own_cluster_are_up_to_date() -> None:
    made = rbac_manifests(operator.home_rights(), name=operator.name, namespace=f"{operator.name}-system")
    assert to_yaml(made) == HOME_RBAC.read_text(), "run: kapsa rbac website:operator --home -o rbac-home.yaml"
