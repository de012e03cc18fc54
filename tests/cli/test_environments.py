"""`kapsa environments ls|describe|logs|open|approve|sleep|wake|redeploy|extend`, with the rights of `edit`."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from typer.testing import CliRunner

from kapsa.cli.environments.command import app
from kapsa.cli.target import TargetError
from kapsa.devcluster import DevCluster
from kapsa.environments.installation import crds
from kapsa.environments.resources import Environment, Project
from kapsa.environments.tenancy.roles import people_roles
from kapsa.runtime import Client, ClientError, Forbidden
from tests.environments.service_account import kubeconfig_of
from tests.eventually import eventually

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EXPIRES = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)


class Developer:
    """A person with the role edit in the namespace of a team, whose project shop has environments."""

    def __init__(self, cluster: DevCluster, client: Client, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.directory = directory
        self.team = f"team-{uuid.uuid4().hex[:8]}"
        self.home = f"{self.team}-shop"
        self.kubeconfig = directory / "none"

    async def prepare(self) -> None:
        """Create the namespaces, the rights, the project, and two of its environments."""
        for manifest in (*crds(), *people_roles()):
            await self.client.apply(manifest, force=True)
        for namespace in (self.team, self.home, f"{self.home}-cart"):
            await self.client.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            )
        await eventually(self._served, bool, "the kinds are served", seconds=90)
        await self._account()
        spec = {
            "source": {"repositoryUrl": "https://git.example.com/shop"},
            "deployment": {"type": "image"},
        }
        await self._create(Project, "shop", self.team, spec, {"namespace": {"name": self.home}})
        await self.environment("cart", {"branch": "feature/cart"}, ready=True)
        await self.environment("pr-42", {"prNumber": 42})
        await eventually(self._readable, bool, "the rights are in effect", seconds=90)

    async def environment(self, name: str, source: dict[str, Any], *, ready: bool = False) -> None:
        spec = {"projectRef": {"name": "shop"}, "source": {"commitSha": COMMIT, **source}, "ttl": "2h"}
        status: dict[str, Any] = {
            "phase": "Ready" if ready else "Pending",
            "seenCommit": COMMIT,
            "expiresAt": EXPIRES.isoformat().replace("+00:00", "Z"),
            "conditions": [_ready() if ready else _waiting()],
        }
        if ready:
            status |= {"url": "https://cart.example.com", "namespace": {"name": f"{self.home}-{name}"}}
        await self._create(Environment, name, self.home, spec, status)

    async def kapsa(self, *arguments: str) -> str:
        """Run a command that must succeed. Returns its standard output."""
        result = await self._run(*arguments)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        return result.stdout

    async def refusal(self, *arguments: str) -> str:
        """Run a command that must fail with advice. Returns the advice."""
        result = await self._run(*arguments)
        assert isinstance(result.exception, TargetError), (result.output, result.exception)
        return str(result.exception)

    async def get(self, name: str) -> Environment:
        return await self.client.get(Environment, name, namespace=self.home)

    async def _run(self, *arguments: str) -> Any:
        options = [*arguments, f"--kubeconfig={self.kubeconfig}"]
        return await asyncio.to_thread(CliRunner().invoke, app, options)

    async def _account(self) -> None:
        metadata = {"name": "developer", "namespace": self.team}
        await self.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        for role, namespace in (
            ("edit", self.team),
            ("kapsa-environments-edit", self.home),
            ("kapsa-pods-edit", f"{self.home}-cart"),
        ):
            await self.client.create(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": "developer", "namespace": namespace},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": role,
                    },
                    "subjects": [{"kind": "ServiceAccount", **metadata}],
                }
            )
        self.kubeconfig = await kubeconfig_of(
            self.cluster, self.client, "developer", self.team, self.directory
        )

    async def _create(
        self, kind: Any, name: str, namespace: str, spec: dict[str, Any], status: dict[str, Any]
    ) -> None:
        metadata = {"name": name, "namespace": namespace}
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        await self.client.create(manifest)
        await self.client.patch(kind, name, {"status": status}, namespace=namespace, subresource="status")

    async def _served(self) -> bool:
        try:
            for kind in (Project, Environment):
                await self.client.list(kind)
        except ClientError:
            return False
        return True

    async def _readable(self) -> bool:
        """Return whether the API server has seen the bindings, and aggregated the roles."""
        async with Client.connect(kubeconfig=self.kubeconfig) as own:
            try:
                await own.list(Project, namespace=self.team)
                await own.list(Environment, namespace=self.home)
                await own.list("v1/Pod", namespace=f"{self.home}-cart")
            except Forbidden:
                return False
        return True


def _ready() -> dict[str, Any]:
    return {"type": "Ready", "status": "True", "reason": "Ready", **_SINCE, "message": "serving"}


def _waiting() -> dict[str, Any]:
    message = "not trusted \x1b[2J"
    return {"type": "Ready", "status": "False", "reason": "ApprovalRequired", **_SINCE, "message": message}


_SINCE = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest_asyncio.fixture
async def developer(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Developer]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        made = Developer(cluster, client, tmp_path)
        await made.prepare()
        yield made


async def test_environments_are_listed_and_selected_from_the_namespace_of_the_team(
    developer: Developer,
) -> None:
    table = await developer.kapsa("ls")
    header, cart, fork = table.splitlines()
    assert header.split() == [
        "NAME",
        "PROJECT",
        "SOURCE",
        "COMMIT",
        "PHASE",
        "REASON",
        "EXPIRES",
        "AGE",
        "URL",
    ]
    assert cart.split()[:6] == ["cart", "shop", "feature/cart", COMMIT[:8], "Ready", "Ready"]
    assert "https://cart.example.com" in cart
    assert "pr 42" in fork
    assert "ApprovalRequired" in fork
    assert await developer.kapsa("ls", "--project", f"{developer.team}/shop", "-o", "name") == "cart\npr-42\n"
    listed = json.loads(await developer.kapsa("ls", "--branch", "feature/cart", "-o", "json"))
    assert [each["metadata"]["name"] for each in listed["items"]] == ["cart"]
    assert listed["items"][0]["kind"] == "Environment"
    chosen = yaml.safe_load(await developer.kapsa("describe", "--pr", "42", "-o", "yaml"))
    assert chosen["environment"]["metadata"]["name"] == "pr-42"
    direct = await developer.kapsa("ls", "-n", developer.home, "-p", "shop", "-o", "name")
    assert direct == "cart\npr-42\n"
    assert await developer.kapsa("open", "cart", "--print") == "https://cart.example.com\n"
    text = await developer.kapsa("describe", "pr-42")
    assert f"Next: read the commit, then `kapsa environments approve pr-42 -n {developer.home}`" in text
    assert "\x1b" not in text, "a message cannot clear the terminal"


async def test_each_change_is_one_patch_that_an_editor_may_make(developer: Developer) -> None:
    assert await developer.kapsa("sleep", "cart") == f"environment {developer.home}/cart: put to sleep\n"
    assert (await developer.get("cart")).spec.suspended
    assert "kapsa environments wake cart" in await developer.kapsa("describe", "cart")
    woken = json.loads(await developer.kapsa("wake", "--branch", "feature/cart", "-o", "json"))
    assert woken["spec"].get("suspended", False) is False
    await developer.kapsa("redeploy", "cart")
    request = (await developer.get("cart")).metadata.annotations["catalyst.dev/redeploy-requested"]
    assert datetime.fromisoformat(request).tzinfo is not None
    await developer.kapsa("redeploy", "cart", "--commit", "f" * 40)
    assert (await developer.get("cart")).spec.source.commit_sha == "f" * 40
    assert "not a full commit hash" in await developer.refusal("redeploy", "cart", "--commit", "0123456")
    await developer.kapsa("extend", "--pr", "42", "--for", "72h")
    kept = (await developer.get("pr-42")).metadata.annotations["catalyst.dev/keep-until"]
    assert datetime.fromisoformat(kept) > EXPIRES + timedelta(hours=60)
    await developer.kapsa("approve", "--pr", "42", "--commit", COMMIT)
    approved = (await developer.get("pr-42")).metadata.annotations["catalyst.dev/approved-commit"]
    assert approved == COMMIT


async def test_a_mistake_is_answered_by_what_to_do(developer: Developer) -> None:
    assert "give the NAME" in await developer.refusal("sleep")
    assert "`kapsa environments ls` lists them" in await developer.refusal("wake", "nothing")
    assert "asks for commit 0123456" in await developer.refusal("approve", "pr-42", "--commit", "f" * 40)
    assert "add --yes" in await developer.refusal("approve", "pr-42"), "no terminal to ask on"
    asked = await developer.refusal("approve", "pr-42", "--commit", COMMIT[:12])
    assert f"Let commit {COMMIT} of environment pr-42 run" in asked, "others may start with the same digits"
    assert "needs no approval" in await developer.refusal("approve", "cart", "--yes")
    assert "already: give a longer --for" in await developer.refusal("extend", "cart", "--for", "1h")
    assert "is not a duration" in await developer.refusal("extend", "cart", "--for", "tomorrow")
    assert "has no URL (phase Pending)" in await developer.refusal("open", "pr-42")
    assert "has no namespace yet" in await developer.refusal("logs", "pr-42")
    assert "has no failed build" in await developer.refusal("logs", "cart", "--build")
    assert "it has no pods" in await developer.refusal("logs", "cart")
    refused = await developer.refusal("ls", "-A")
    assert "is forbidden" in refused
    assert "Ask an administrator for the role view" in refused
    assert "choose one of: service-account" in await developer.refusal("ls", "--context", "elsewhere")
    annotations = (await developer.get("pr-42")).metadata.annotations
    assert "catalyst.dev/approved-commit" not in annotations


async def test_the_log_of_a_failed_build_is_that_of_the_build_and_of_nothing_else(
    developer: Developer,
) -> None:
    failure = {
        "step": "build",
        "reason": "BuildFailed",
        "message": "failed",
        "logTail": "RUN make\nerror: 1\n",
    }

    async def fail(**other: str) -> None:
        status = {"status": {"failure": {**failure, **other}}}
        await developer.client.patch(
            Environment, "cart", status, namespace=developer.home, subresource="status"
        )

    await fail()
    assert await developer.kapsa("logs", "cart", "--build") == "RUN make\nerror: 1\n"
    await fail(step="apply", reason="Unhealthy")
    assert "has no failed build" in await developer.refusal("logs", "cart", "--build")


async def test_logs_are_those_of_all_pods_and_are_marked_if_there_are_several(developer: Developer) -> None:
    if developer.cluster.engine == "real":
        pytest.skip("its nodes are simulated by kwok, and no kubelet serves the logs of their pods")
    namespace = f"{developer.home}-cart"
    developer.cluster.workloads.logs(f"{namespace}/web", "hello\nworld\n")
    developer.cluster.workloads.logs(f"{namespace}/worker", "working\n")

    async def start(name: str) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        }
        await developer.client.create(pod)

        async def runs() -> Any:
            return (await developer.client.get("v1/Pod", name, namespace=namespace))["status"].get("phase")

        await eventually(runs, lambda phase: phase == "Running", f"{name} runs")

    await start("web")
    assert await developer.kapsa("logs", "cart") == "hello\nworld\n"
    assert await developer.kapsa("logs", "cart", "--tail", "1") == "world\n"
    await start("worker")
    assert set((await developer.kapsa("logs", "cart")).splitlines()) == {
        "web/app | hello",
        "web/app | world",
        "worker/app | working",
    }
    assert await developer.kapsa("logs", "cart", "--pod", "worker") == "working\n"
