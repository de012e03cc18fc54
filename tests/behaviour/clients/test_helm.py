"""The real Helm against the cluster: releases from install to uninstall, with hooks, waiting and rollbacks."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, NotFound

pytestmark = [pytest.mark.timeout(300), pytest.mark.sampled(4, of="module")]
NUMBERS = itertools.count(1)
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app: {{ .Release.Name }}}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      nodeSelector: {{ .Values.nodeSelector | toJson }}
      containers: [{name: main, image: "example.com/app:{{ .Values.tag }}"}]
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {clusterIP: None, selector: {app: {{ .Release.Name }}}, ports: [{port: 80}]}
"""
HOOK = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
data: {revision: "{{ .Release.Revision }}"}
"""
TEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
"""
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: app\nversion: 0.1.0\n",
    "values.yaml": "replicas: 1\ntag: '1'\nnodeSelector: {}\n",
    "templates/deployment.yaml": DEPLOYMENT,
    "templates/service.yaml": SERVICE,
    "templates/hook.yaml": HOOK,
    "templates/test.yaml": TEST,
}


class Helm:
    """Helm with a home of its own, in one namespace of a cluster."""

    def __init__(self, cluster: DevCluster, client: Client, directory: Path, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.directory = directory
        self.chart = str(directory / "app")
        self._program = str(find_tool("helm").path)
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig),
            "HELM_NAMESPACE": namespace,
            **{f"HELM_{each}_HOME": str(directory / each.lower()) for each in ("CACHE", "CONFIG", "DATA")},
        }
        for name, text in CHART.items():
            path = directory / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def run(self, *arguments: str, fails: bool = False) -> str:
        """Run Helm and return its output, asserting its exit code."""
        process = await asyncio.create_subprocess_exec(
            *(self._program, *arguments), env=self._environment, stdout=-1, stderr=-2
        )
        output = (await process.communicate())[0].decode()
        assert (process.returncode != 0) is fails, f"helm {' '.join(arguments)}: {output}"
        return output

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.run(*arguments, "--output", "json"))

    async def statuses(self, release: str = "web") -> list[str]:
        return [entry["status"] for entry in await self.json("history", release)]

    async def deployment(self, release: str = "web") -> Any:
        return await self.client.get("apps/v1/Deployment", release, namespace=self.namespace)

    async def is_gone(self, kind: str, name: str) -> bool:
        try:
            await self.client.get(kind, name, namespace=self.namespace)
        except NotFound:
            return True
        return False


@pytest_asyncio.fixture
async def helm(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Helm]:
    namespace = f"helm-{next(NUMBERS)}-{os.getpid()}"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield Helm(cluster, client, tmp_path, namespace)


@pytest.mark.parametrize("strategy", ["watcher", "legacy"])
async def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(helm: Helm, strategy: str) -> None:
    wait = (f"--wait={strategy}", "--timeout", "60s")
    await helm.run("install", "web", helm.chart, *wait)
    assert (await helm.deployment())["status"]["availableReplicas"] == 1
    await helm.run("upgrade", "web", helm.chart, "--set", "replicas=2,tag=2", *wait)
    assert (await helm.deployment())["status"]["availableReplicas"] == 2
    await helm.run("rollback", "web", "1", *wait)
    deployment = await helm.deployment()
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/app:1"
    assert await helm.statuses() == ["superseded", "superseded", "deployed"]
    status = await helm.json("status", "web")
    assert (status["info"]["status"], status["version"]) == ("deployed", 3)
    assert [entry["name"] for entry in await helm.json("list")] == ["web"]
    await helm.run("uninstall", "web", *wait)
    assert await helm.is_gone("apps/v1/Deployment", "web")
    assert await helm.is_gone("v1/Service", "web")
    assert await helm.json("list") == []


async def test_hooks_run_before_the_release_and_tests_on_demand(helm: Helm) -> None:
    await helm.run("install", "web", helm.chart)
    hook = await helm.client.get("v1/ConfigMap", "web-hook", namespace=helm.namespace)
    await helm.run("upgrade", "web", helm.chart)
    again = await helm.client.get("v1/ConfigMap", "web-hook", namespace=helm.namespace)
    assert (hook["data"], again["data"]) == ({"revision": "1"}, {"revision": "2"})
    assert hook["metadata"]["uid"] != again["metadata"]["uid"], "deleted before its creation"
    assert await helm.is_gone("v1/ConfigMap", "web-test")
    await helm.run("test", "web")
    assert not await helm.is_gone("v1/ConfigMap", "web-test")


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", ["watcher", "legacy"])
async def test_waiting_ends_with_the_timeout_of_a_pod_that_never_starts(helm: Helm, strategy: str) -> None:
    arguments = ("--set-json", 'nodeSelector={"nowhere":"true"}', f"--wait={strategy}", "--timeout", "3s")
    await helm.run("install", "web", helm.chart, *arguments, fails=True)
    assert await helm.statuses() == ["failed"]


@pytest.mark.long
async def test_a_failed_upgrade_is_rolled_back(helm: Helm) -> None:
    await helm.run("install", "web", helm.chart, "--wait", "--timeout", "60s")
    arguments = ("--set-json", 'nodeSelector={"nowhere":"true"}', "--set", "tag=2", "--timeout", "4s")
    await helm.run("upgrade", "web", helm.chart, "--rollback-on-failure", *arguments, fails=True)
    assert await helm.statuses() == ["superseded", "failed", "deployed"]
    image = (await helm.deployment())["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "example.com/app:1"


async def test_an_object_of_somebody_else_is_refused_until_it_is_taken(helm: Helm) -> None:
    metadata = {"name": "web", "namespace": helm.namespace}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": {"app": "web"}},
    }
    await helm.client.create(service)
    refusal = await helm.run("install", "web", helm.chart, fails=True)
    assert "invalid ownership metadata" in refusal
    await helm.run("install", "web", helm.chart, "--take-ownership")
    taken = await helm.client.get("v1/Service", "web", namespace=helm.namespace)
    assert taken["metadata"]["annotations"]["meta.helm.sh/release-name"] == "web"
    assert taken["spec"]["ports"][0]["port"] == 80


async def test_a_release_is_applied_by_the_server_or_patched_by_the_client(helm: Helm) -> None:
    await helm.run("install", "server", helm.chart)
    await helm.run("install", "client", helm.chart, "--server-side=false")
    await helm.run("upgrade", "client", helm.chart, "--server-side=false", "--set", "replicas=2")
    operations = {
        release: {
            entry["operation"]
            for entry in (await helm.deployment(release))["metadata"]["managedFields"]
            if entry["manager"] == "helm" and "subresource" not in entry
        }
        for release in ("server", "client")
    }
    assert operations == {"server": {"Apply"}, "client": {"Update"}}
    assert (await helm.deployment("client"))["spec"]["replicas"] == 2


@pytest.fixture
def chart_server(tmp_path: Path) -> Iterator[str]:
    """An HTTP server on loopback for the directory `charts`."""
    directory = tmp_path / "charts"
    directory.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_a_chart_comes_from_a_repository_over_http(helm: Helm, chart_server: str) -> None:
    charts = helm.directory / "charts"
    await helm.run("package", helm.chart, "--destination", str(charts))
    await helm.run("repo", "index", str(charts), "--url", chart_server)
    assert list(yaml.safe_load((charts / "index.yaml").read_text())["entries"]) == ["app"]
    await helm.run("repo", "add", "ours", chart_server)
    await helm.run("install", "web", "ours/app", "--version", "0.1.0")
    assert await helm.statuses() == ["deployed"]


async def test_a_chart_comes_from_an_oci_registry(helm: Helm) -> None:
    with RegistryServer() as registry:
        address = f"oci://{registry.endpoint}/charts"
        await helm.run("package", helm.chart, "--destination", str(helm.directory))
        await helm.run("push", str(helm.directory / "app-0.1.0.tgz"), address, "--plain-http")
        await helm.run("install", "web", f"{address}/app", "--version", "0.1.0", "--plain-http")
    assert await helm.statuses() == ["deployed"]
