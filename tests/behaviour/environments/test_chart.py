"""The chart: its objects, its consistency with the code, and install, upgrade and uninstall on a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa import __version__
from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster
from kapsa.environments.installation import NAME, chart_files, crds, installation
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.operator import LEASE, make_operator
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.roles import people_roles
from kapsa.runtime import Client, grants, missing_rules
from kapsa.runtime.telemetry.metrics import Metrics
from kapsa.runtime.webhooks.server import WebhookServer
from tests.behaviour.kapsa_chart import (
    CHART,
    HOME,
    ROOT,
    act,
    create_open_kinds,
    eventually_all_gone,
    exists,
    helm,
    only,
    rendered,
)
from tests.environments.service_account import kubeconfig_of

VALIDATING = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
MONITORING = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule")
EVERYTHING = {
    "metrics": {"serviceMonitor": {"enabled": True}, "alerts": {"enabled": True}},
    "webhooks": {"certificates": "cert-manager"},
    "gitWebhooks": {"enabled": True, "secretName": "git-webhooks"},
    "operator": {"settings": {"PREVIEW_DOMAIN": "preview.example.com", "GIT_MAX_BYTES": 3_000_000_000}},
}


def variables(objects: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def in_one_way(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# -- what it renders -----------------------------------------------------------------------------------------


def test_what_the_chart_takes_from_the_code_is_up_to_date() -> None:
    stale = [name for name, text in chart_files().items() if (CHART / "files" / name).read_text() != text]
    assert not stale, "run .venv/bin/python tools/chart_files.py"


def test_the_chart_has_the_versions_of_the_code() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
async def test_helm_finds_nothing_wrong(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    code, out = await helm("lint", "--strict", f"--values={file}", CHART)
    assert code == 0, out


async def test_the_chart_grants_what_the_generator_says(tmp_path: Path) -> None:
    objects = await rendered(tmp_path)
    generated = installation(Settings(webhooks_enabled=True), image="kapsa:test")
    for kind in ("ClusterRole", "Role"):
        mine, theirs = only(objects, kind, NAME)["rules"], only(generated, kind, NAME)["rules"]
        assert sorted(map(in_one_way, mine)) == sorted(map(in_one_way, theirs))
    plain = await rendered(tmp_path, {"webhooks": {"enabled": False}})
    assert (
        only(plain, "ClusterRole", NAME)["rules"]
        == only(installation(Settings(), image="kapsa:test"), "ClusterRole", NAME)["rules"]
    )


async def test_the_chart_has_the_roles_for_people(tmp_path: Path) -> None:
    objects = await rendered(tmp_path)
    for role in people_roles():
        mine = only(objects, "ClusterRole", role["metadata"]["name"])
        assert mine["rules"] == role["rules"]
        aggregated = {key: value for key, value in role["metadata"]["labels"].items() if "aggregate" in key}
        assert aggregated.items() <= mine["metadata"]["labels"].items()


async def test_with_cert_manager_no_secret_need_be_written(tmp_path: Path) -> None:
    settings = Settings(webhooks_enabled=True, webhook_cert_directory=Path("/certificates"))
    generated = installation(settings, image="kapsa:test")
    objects = await rendered(tmp_path, EVERYTHING)
    for kind in ("ClusterRole", "Role"):
        mine, theirs = only(objects, kind, NAME)["rules"], only(generated, kind, NAME)["rules"]
        assert sorted(map(in_one_way, mine)) == sorted(map(in_one_way, theirs))
    secret = only(objects, "Certificate")["spec"]["secretName"]
    volumes = only(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "webhooks-certificate", "secret": {"secretName": secret}} in volumes


async def test_webhooks_at_a_url_are_called_there(tmp_path: Path) -> None:
    values = {"webhooks": {"url": "https://hooks.example.com:8443/kapsa/", "certificates": "cert-manager"}}
    objects = await rendered(tmp_path, values)
    settings = Settings.from_environment(variables(objects))
    assert settings.webhook_url == "https://hooks.example.com:8443/kapsa/"
    for webhook in only(objects, "ValidatingWebhookConfiguration")["webhooks"]:
        assert list(webhook["clientConfig"]) == ["url"]
        assert webhook["clientConfig"]["url"].startswith("https://hooks.example.com:8443/kapsa/validate")
    assert only(objects, "Certificate")["spec"]["dnsNames"] == ["hooks.example.com"]
    values["webhooks"]["url"] = "https://10.1.2.3:8443"
    assert only(await rendered(tmp_path, values), "Certificate")["spec"]["ipAddresses"] == ["10.1.2.3"]


async def test_the_image_is_what_the_chart_runs(tmp_path: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    pod = only(await rendered(tmp_path), "Deployment")["spec"]["template"]["spec"]
    user = pod["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in dockerfile
    assert 'ENTRYPOINT ["kapsa"]' in dockerfile
    assert pod["containers"][0]["args"] == ["environments", "run"]
    mounted = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    written = set(re.findall(r"(?:HOME|XDG_CACHE_HOME)=(\S+)", dockerfile.rpartition("FROM")[2]))
    assert written == mounted


def test_the_image_gets_all_that_it_is_built_of() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [name for line in sources for name in line.split()]
    assert copied
    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / name).exists() for name in copied)


async def test_the_pod_is_locked_down(tmp_path: Path) -> None:
    pod = only(await rendered(tmp_path), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


async def test_values_become_settings_that_the_operator_takes(tmp_path: Path) -> None:
    settings = Settings.from_environment(variables(await rendered(tmp_path)))
    assert settings == Settings(webhooks_enabled=True)
    given = variables(await rendered(tmp_path, EVERYTHING))
    settings = Settings.from_environment({**given, "KAPSA_GIT_WEBHOOK_SECRET": "x"})
    assert settings.preview_domain == "preview.example.com"
    assert settings.git_max_bytes == 3_000_000_000
    assert settings.git_webhook_port == 8090
    assert str(settings.webhook_cert_directory) == "/etc/kapsa/webhooks"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "operator.settings.PREVIEWDOMAIN=a.b",
            "operator.settings.PREVIEWDOMAIN is not a setting of the operator",
        ),
        ("operator.settings.LOG_LEVEL=DEBUG", "is set by other values of this chart"),
        ("operator.settings.WEBHOOK_URL=https://a.b", "is set by other values of this chart"),
        ("webhooks.url=http://a.b", "does not match pattern"),
        ("operator.replica=3", "additional properties 'replica' not allowed"),
        ("operator.logging.level=loud", "value must be one of"),
        ("gitWebhooks.enabled=true", "/gitWebhooks/secretName"),
    ],
)
async def test_a_wrong_value_is_refused_by_name(wrong: str, message: str) -> None:
    code, out = await helm("template", "kapsa", CHART, f"--set={wrong}")
    assert code == 1
    assert message in out


async def test_one_replica_needs_no_disruption_budget(tmp_path: Path) -> None:
    kinds = {each["kind"] for each in await rendered(tmp_path, {"operator": {"replicas": 1}})}
    assert "Deployment" in kinds
    assert "PodDisruptionBudget" not in kinds


def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    class Nothing:
        def watches(self, gvk: object) -> bool:
            return False

    metrics = Metrics()
    metrics.watch_queues([])
    metrics.watch_informers(list, lambda: 0.0)
    metrics.watch(lambda: EnvironmentMetrics().collect(Nothing()))  # type: ignore[arg-type]
    have = set(re.findall(r"^# TYPE (\w+)", metrics.render().decode(), flags=re.MULTILINE))
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    asked = [each["expr"] for each in alerts]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expr in asked for name in re.findall(r"\b([a-z]+(?:_[a-z]+)+)(?=[\[{)]| \()", expr)}
    named -= {"histogram_quantile"}
    assert len(named) > 20
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in named} <= have


# -- on a cluster --------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def empty() -> AsyncIterator[DevCluster]:
    """A separate cluster without our kinds: a release must own all that it installs."""
    async with DevCluster(engine="real") as cluster:
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            await create_open_kinds(client, *MONITORING)
        yield cluster


INSTALLED = {
    "apps/v1/Deployment": NAME,
    "v1/ServiceAccount": NAME,
    "rbac.authorization.k8s.io/v1/ClusterRole": NAME,
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": NAME,
    "rbac.authorization.k8s.io/v1/Role": NAME,
    "rbac.authorization.k8s.io/v1/RoleBinding": NAME,
    "policy/v1/PodDisruptionBudget": NAME,
    "v1/Service": f"{NAME}-webhooks",
    "v1/ConfigMap": f"{NAME}-dashboard",
    "monitoring.coreos.com/v1/ServiceMonitor": NAME,
    "monitoring.coreos.com/v1/PrometheusRule": NAME,
    VALIDATING: "kapsa",
}


@pytest.mark.real  # helm stores releases as protobuf, which the embedded engine does not read
async def test_a_release_is_installed_upgraded_and_uninstalled(empty: DevCluster, tmp_path: Path) -> None:
    async with Client.connect(kubeconfig=empty.kubeconfig) as client:
        wait = ("--wait", "--timeout=90s")
        output = await act(empty, "install", "kapsa", CHART, "--create-namespace", *wait)
        assert f"rollout status deployment/{NAME}" in output
        for kind, name in INSTALLED.items():
            assert await exists(client, kind, name), kind
        for crd in crds():
            assert await exists(
                client, "apiextensions.k8s.io/v1/CustomResourceDefinition", crd["metadata"]["name"]
            )
        deployment = await client.get("apps/v1/Deployment", NAME, namespace=HOME)
        assert deployment["status"]["availableReplicas"] == 2
        await everything_is_taken_strictly(client, tmp_path)
        await its_service_account_has_its_rights(empty, client, tmp_path)

        authority = await its_operator_registers_the_webhooks(empty, client, tmp_path)
        newer = a_newer_chart(tmp_path)
        output = await act(empty, "upgrade", "kapsa", newer, "--set=operator.logging.level=DEBUG", *wait)
        webhook = (await client.get(VALIDATING, "kapsa"))["webhooks"][0]
        assert (webhook["clientConfig"]["caBundle"], webhook["timeoutSeconds"]) == (authority, 6)
        deployment = await client.get("apps/v1/Deployment", NAME, namespace=HOME)
        told_to = {
            each["name"]: each.get("value")
            for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        assert told_to["KAPSA_LOG_LEVEL"] == "DEBUG"

        await what_its_operator_makes_itself(client)
        people, pools, uninstall, own, builds, kinds = commands_to_remove_everything(output)
        for command in (people, pools, uninstall):
            await shell(empty, command)
        await eventually_all_gone(client, INSTALLED)
        for kind, name in LEFT.items():
            assert await exists(client, kind, name), kind
        for command in (own, builds, kinds):
            await shell(empty, command)
        await eventually_all_gone(client, LEFT)


LEFT = {
    "coordination.k8s.io/v1/Lease": LEASE,
    "v1/Secret": "kapsa-webhook-certificates",
    "v1/Namespace": Settings().build_namespace,
    "apiextensions.k8s.io/v1/CustomResourceDefinition": "projects.catalyst.catalyst.dev",
}
"""The objects that `helm uninstall` keeps; the Secret was created with the webhooks."""


async def what_its_operator_makes_itself(client: Client) -> None:
    lease = {"name": LEASE, "namespace": HOME}
    await client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease})
    builds = {"name": Settings().build_namespace}
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": builds})


def commands_to_remove_everything(notes: str) -> list[str]:
    """Return the commands that `helm install` prints."""
    section = notes[notes.index("To remove everything:") :]
    return re.findall(r"^  ((?:kubectl|helm) .+)$", section, re.MULTILINE)


async def shell(cluster: DevCluster, command: str) -> None:
    tools = [str(Path(find_tool(name).path).parent) for name in ("kubectl", "helm")]
    path = os.pathsep.join([*tools, os.environ["PATH"]])
    process = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, f"{command}: {out.decode()}"


async def its_operator_registers_the_webhooks(cluster: DevCluster, client: Client, tmp_path: Path) -> str:
    """Register the webhooks, as the leader does at its start. Returns the CA in the registration."""
    operator = make_operator(Settings(namespace=HOME, webhooks_enabled=True, webhook_port=0))
    kubeconfig = await kubeconfig_of(cluster, client, NAME, HOME, tmp_path)
    assert operator.webhooks is not None
    async with Client.connect(kubeconfig=kubeconfig, field_manager=operator.field_manager) as account:
        server = WebhookServer(operator.webhooks, account, operator=operator.name)
        await server.keep()
        await server.stop()
    return str((await client.get(VALIDATING, "kapsa"))["webhooks"][0]["clientConfig"]["caBundle"])


def a_newer_chart(tmp_path: Path) -> Path:
    """Return the chart of a version whose webhooks have a longer timeout."""
    newer = tmp_path / "newer"
    shutil.copytree(CHART, newer)
    file = newer / "files" / "webhooks.yaml"
    file.write_text(file.read_text().replace("timeoutSeconds: 5", "timeoutSeconds: 6"))
    return newer


async def everything_is_taken_strictly(client: Client, tmp_path: Path) -> None:
    values = {**EVERYTHING, "webhooks": {}}  # cert-manager's kinds are not there
    for manifest in await rendered(tmp_path, values):
        await client.apply(
            manifest, force=True, field_manager="strict", field_validation="Strict", dry_run=True
        )


async def its_service_account_has_its_rights(cluster: DevCluster, client: Client, tmp_path: Path) -> None:
    kubeconfig = await kubeconfig_of(cluster, client, NAME, HOME, tmp_path)
    declared = grants(make_operator(Settings(webhooks_enabled=True)).rights(), namespace=HOME)
    async with Client.connect(kubeconfig=kubeconfig) as operator:
        assert await missing_rules(operator, declared) == []
