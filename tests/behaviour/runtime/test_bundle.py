"""The bundle on a cluster: installed by the real Helm, and its service account does the operator's work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, NotFound, grants, missing_rules
from kapsa.runtime.operator.entrypoint import load_operator
from tests.environments.service_account import kubeconfig_of
from tests.eventually import eventually

KAPSA = Path(sys.executable).parent / "kapsa"
MODULE = '''
from kapsa.runtime import *

class CrateSpec(Spec):
    size: int = 1

class Crate(CustomResource[CrateSpec, Status], group="NAME.example.com", version="v1"):
    """A crate."""

class CrateController(Controller[Crate]):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, crate, ctx):
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": crate.name}})
        ctx.condition("Ready", True, reason="Made")

class CrateValidator(ValidatingWebhook[Crate]):
    def validate(self, request):
        return allow()

operator = Operator(
    controllers=[CrateController()],
    leader_election="NAME",
    webhooks=Webhooks(CrateValidator(), service="crate-webhooks"),
    metrics_port=None, health_port=None,
)
'''
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


async def run(*command: str | Path, folder: Path) -> str:
    """Run a command, while this thread serves the cluster."""
    result = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Project(msgspec.Struct, frozen=True):
    """The module of an operator, with names of its own: the real cluster is shared."""

    name: str
    """The name of the operator and its namespace, and the first label of its API group."""
    folder: Path

    @property
    def target(self) -> str:
        return f"{self.name}:operator"

    async def bundle(self, *options: str) -> str:
        return await run(KAPSA, "bundle", self.target, "--image=crate:1", *options, folder=self.folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    name = f"crates{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Project(name, tmp_path)


@pytest.fixture
async def admin(cluster: DevCluster) -> AsyncIterator[Client]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        yield client


async def reconciles(cluster: DevCluster, admin: Client, project: Project) -> None:
    """Run the operator as the service account that was installed, and see it do its work."""
    operator = load_operator(project.target)
    kubeconfig = await kubeconfig_of(cluster, admin, operator.name, project.name, project.folder)
    crate = {
        "apiVersion": f"{project.name}.example.com/v1",
        "kind": "Crate",
        "metadata": {"name": "one", "namespace": project.name},
        "spec": {},
    }
    async with Client.connect(kubeconfig=kubeconfig) as client:
        assert await missing_rules(client, grants(operator.rights(), namespace=project.name)) == []
        operator.webhooks = None  # no pod runs here that the API server could reach
        async with operator.running(client):
            await admin.create(crate)

            async def made() -> Any:
                try:
                    return await admin.get("v1/ConfigMap", "one", namespace=project.name)
                except NotFound:
                    return None

            await eventually(made, bool, "the child of the Crate", seconds=180)


@pytest.mark.long
async def test_a_chart_is_installed_upgraded_and_uninstalled_by_helm(
    cluster: DevCluster, admin: Client, project: Project
) -> None:
    await project.bundle("--chart=chart")
    helm = [find_tool("helm").path, f"--kubeconfig={cluster.kubeconfig}", f"--namespace={project.name}"]
    await run(*helm, "install", "crates", "chart", "--create-namespace", folder=project.folder)
    deployment = await admin.get("apps/v1/Deployment", project.name, namespace=project.name)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "crate:1"
    service = await admin.get("v1/Service", "crate-webhooks", namespace=project.name)
    assert service["spec"]["ports"][0]["port"] == 443
    await reconciles(cluster, admin, project)
    await run(
        *helm,
        "upgrade",
        "crates",
        "chart",
        "--set=replicas=3",
        "--set-string=image.tag=2",
        folder=project.folder,
    )
    deployment = await admin.get("apps/v1/Deployment", project.name, namespace=project.name)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "crate:2"
    await run(*helm, "uninstall", "crates", "--wait=false", folder=project.folder)
    await admin.get(CRD, f"crates.{project.name}.example.com")
    await admin.get(f"{project.name}.example.com/v1/Crate", "one", namespace=project.name)
    with pytest.raises(NotFound):
        await admin.get("rbac.authorization.k8s.io/v1/ClusterRole", project.name)


@pytest.mark.long
async def test_plain_manifests_install_an_operator_that_has_the_rights_it_needs(
    cluster: DevCluster, admin: Client, project: Project
) -> None:
    for manifest in yaml.safe_load_all(await project.bundle(f"--namespace={project.name}")):
        await admin.apply(manifest, field_manager="person", force=True, field_validation="Strict")
    await reconciles(cluster, admin, project)
