"""The operator as a program: a cluster accepts its manifests, and it runs as they describe."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kapsa.devcluster import DevCluster
from kapsa.environments.installation import NAME, crds, installation
from kapsa.environments.operator import make_operator
from kapsa.environments.resources import Environment, PreviewEnvironment
from kapsa.environments.settings import Settings
from kapsa.runtime import Client, Forbidden
from tests.environments.service_account import act_as_service_account
from tests.eventually import eventually

COMMAND = [sys.executable, "-c", "from kapsa.cli import main; main()"]


def made(settings: Settings | None = None) -> list[dict[str, Any]]:
    return installation(settings or Settings(), image="kapsa:test")


async def test_a_cluster_takes_all_manifests_under_strict_validation(cluster: DevCluster) -> None:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for manifest in made():
            await client.apply(manifest, force=True, field_validation="Strict")
        deployment = await client.get("apps/v1/Deployment", "kapsa-operator", namespace="kapsa-system")
    assert deployment["spec"]["replicas"] == 2


def test_no_rule_has_a_wildcard() -> None:
    rules = [rule for each in made() if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_the_settings_decide_ports_and_the_lease() -> None:
    operator = make_operator(Settings())
    assert (operator.metrics_port, operator.health_port) == (8080, 8080)
    assert operator.leader_election is not None
    assert operator.leader_election.namespace == "kapsa-system"
    quiet = make_operator(Settings(metrics_enabled=False, leader_election=False, metrics_port=9000))
    assert (quiet.metrics_port, quiet.health_port) == (None, 9000)
    assert quiet.leader_election is None


async def call(*arguments: str, env: Mapping[str, str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def variables(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAPSA_")}
    return {**kept, "KAPSA_CACHE_DIRECTORY": str(tmp_path), **more}


async def test_the_command_writes_the_same_manifests(tmp_path: Path) -> None:
    code, out, _ = await call("environments", "manifests", "--image", "kapsa:test", env=variables(tmp_path))
    assert code == 0
    assert list(yaml.safe_load_all(out)) == made()


@pytest.mark.parametrize("command", ["run", "manifests"])
async def test_a_bad_setting_is_one_line_and_nothing_starts(tmp_path: Path, command: str) -> None:
    env = variables(tmp_path, KAPSA_LOG_LEVEL="loud")
    code, out, err = await call("environments", command, env=env)
    assert (code, out) == (1, "")
    assert err == "kapsa: KAPSA_LOG_LEVEL is 'loud', but must be one of DEBUG, INFO, WARNING, ERROR\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Program:
    """A running operator and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())

    async def line(self, text: str) -> str:
        async def find() -> str:
            return next((line for line in self.lines if text in line), "")

        return await eventually(find, bool, f"a line with {text!r} among {self.lines}")

    async def kill(self) -> None:
        """Kill the process, as in a crash."""
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        await self._reader
        return await self.process.wait()


async def start(kubeconfig: Path, env: Mapping[str, str]) -> Program:
    return Program(
        await asyncio.create_subprocess_exec(
            *COMMAND,
            "environments",
            "run",
            "--kubeconfig",
            str(kubeconfig),
            env=env,
            stderr=asyncio.subprocess.PIPE,
        )
    )


@asynccontextmanager
async def running(kubeconfig: Path, env: Mapping[str, str]) -> AsyncIterator[Program]:
    program = await start(kubeconfig, env)
    try:
        yield program
        program.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await program.ended() == 0
    finally:
        await program.kill()


async def test_the_operator_runs_serves_metrics_and_probes_on_one_port_and_stops(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for manifest in made():
            if manifest["kind"] != "Deployment":
                await client.apply(manifest, force=True)
        env = variables(tmp_path, KAPSA_METRICS_PORT=str(free_port()))
        async with running(cluster.kubeconfig, env) as program:
            ports = json.loads(await program.line("metrics_port"))
            assert ports["metrics_port"] == ports["health_port"]
            await program.line('"controller": "previewenvironment"')
            preview = {
                "apiVersion": "devops.orima.com/v1",
                "kind": "PreviewEnvironment",
                "metadata": {"name": "pr-42-env", "namespace": "default"},
                "spec": {"pr_number": 42, "branch_name": "x", "image": "a", "image_tag": "b"},
            }
            await client.create(preview)

            async def look() -> Any:
                return await client.get(PreviewEnvironment, "pr-42-env", namespace="default")

            await eventually(look, lambda each: each.status.is_true("Ready"), "the preview is ready")
            url = f"http://127.0.0.1:{ports['metrics_port']}"
            for path in ("/healthz", "/readyz", "/metrics"):
                _, text = await eventually(
                    lambda path=path: fetch(url + path),  # type: ignore[misc]
                    lambda answer: answer[0] == 200,
                    f"{path} is well",
                )
            assert "preview_environments_active 1.0" in text
            assert "kapsa_projects_total 0.0" in text
            await client.delete(PreviewEnvironment, "pr-42-env", namespace="default")


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


@pytest.mark.long
async def test_missing_kinds_are_reported_at_once_and_watched_when_they_are_installed(tmp_path: Path) -> None:
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
        env = variables(tmp_path, KAPSA_METRICS_PORT="0", KAPSA_LEADER_ELECTION="false")
        async with running(cluster.kubeconfig, env) as program:
            line = json.loads(await program.line("kind not served"))
            assert "install its CustomResourceDefinition" in line["error"]
            for manifest in crds():
                await client.apply(manifest, force=True)
            await program.line('"controller": "environment"')


@pytest.mark.long
async def test_the_second_process_stands_by_and_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for manifest in made():
            if manifest["kind"] != "Deployment":
                await client.apply(manifest, force=True)
        env = variables(tmp_path, KAPSA_METRICS_PORT="0")
        first = await start(cluster.kubeconfig, env)
        await first.line('"leading"')
        async with running(cluster.kubeconfig, env) as second:
            await second.line('"standing by"')
            await first.kill()
            await second.line('"leading"')
            await second.line('"controller": "environment"')


@pytest.mark.real
async def test_a_right_that_is_missing_is_named_as_the_rule_that_grants_it(
    cluster: DevCluster, tmp_path: Path
) -> None:
    settings = Settings(namespace="rights-test")
    operator = make_operator(settings)
    kubeconfig = await act_as_service_account(cluster, operator, settings, tmp_path)
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        role = await client.get("rbac.authorization.k8s.io/v1/ClusterRole", NAME)
        role["rules"] = [rule for rule in role["rules"] if rule["apiGroups"] != ["batch"]]
        await client.replace(role)
    env = variables(tmp_path, KAPSA_METRICS_PORT="0", KAPSA_NAMESPACE="rights-test")
    async with running(kubeconfig, env) as program:
        line = json.loads(await program.line("right missing"))
        assert '{apiGroups: ["batch"], resources: ["cronjobs"], verbs: ["get", "list"' in line["rule"]


@pytest.mark.long
async def test_the_operator_serves_its_webhooks_over_tls(cluster: DevCluster, tmp_path: Path) -> None:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for manifest in made():
            if manifest["kind"] != "Deployment":
                await client.apply(manifest, force=True)
        port = str(free_port())
        env = variables(
            tmp_path,
            KAPSA_METRICS_PORT="0",
            KAPSA_WEBHOOKS_ENABLED="true",
            KAPSA_WEBHOOK_PORT=port,
            KAPSA_WEBHOOK_URL=f"https://127.0.0.1:{port}",
        )
        orphan = {
            "apiVersion": Environment.api_version,
            "kind": Environment.kind,
            "metadata": {"name": "orphan", "namespace": "default"},
            "spec": {"projectRef": {"name": "app"}, "source": {"commitSha": "0123456"}},
        }

        async def refusal() -> str:
            try:
                await client.create(orphan, dry_run=True)
            except Forbidden as error:
                return error.reason
            return ""

        async with running(cluster.kubeconfig, env) as program:
            await program.line("webhooks registered")
            await eventually(refusal, lambda reason: reason == "ProjectMissing", "the webhook refuses")
        homes = [
            each["metadata"]["namespace"]
            for each in (await client.list("v1/Secret")).items
            if "tls.key" in (each.get("data") or {}) or "webhook" in each["metadata"]["name"]
        ]
        assert homes == [Settings().namespace], "the key of the webhooks stays with the operator"
        assert await refusal() == "", "nobody answers, so everything is taken"
        await client.delete("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", "kapsa")


@pytest.mark.long
async def test_logs_can_be_lines_for_people(cluster: DevCluster, tmp_path: Path) -> None:
    env = variables(
        tmp_path, KAPSA_METRICS_PORT="0", KAPSA_LOG_FORMAT="console", KAPSA_LEADER_ELECTION="false"
    )
    async with running(cluster.kubeconfig, env) as program:
        line = await program.line("metrics_port=")
        assert not line.startswith("{")


@pytest.mark.real
async def test_the_service_account_may_do_what_is_generated_and_no_more(
    cluster: DevCluster, tmp_path: Path
) -> None:
    settings = Settings(namespace="account-test")
    kubeconfig = await act_as_service_account(cluster, make_operator(settings), settings, tmp_path)
    async with Client.connect(kubeconfig=kubeconfig) as client:
        await client.list("v1/Namespace")
        with pytest.raises(Forbidden, match="system:serviceaccount:account-test:kapsa-operator"):
            await client.list("v1/Node")
