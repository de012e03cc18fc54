"""The fleet manager in the chart: what its values become, what they refuse, and a release on a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.devcluster import DevCluster
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime import Client
from tests.behaviour.kapsa_chart import (
    CHART,
    FLEET_VALUES,
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
from tests.fleet.seed_metrics import GAUGES

NAME = "kapsa-fleet"
GUIDE = ROOT / "docs" / "fleet" / "installation.md"
MONITOR = "monitoring.coreos.com/v1/ServiceMonitor"
RULE = "monitoring.coreos.com/v1/PrometheusRule"
ALL = {
    **FLEET_VALUES,
    "authentication": {**FLEET_VALUES["authentication"], "clientSecret": {"secretName": "fleet-oidc"}},  # type: ignore[dict-item]
    "ingress": {"enabled": True, "className": "nginx", "host": "fleet.example.com", "tlsSecretName": "web"},
    "autoscaling": {"enabled": True, "activeDeployments": {"metric": "deployments_active"}},
    "serviceMonitor": {"enabled": True, "tokenSecretName": "fleet-metrics"},
    "mail": {"secretName": "fleet-mail"},
    "webhooks": {"secretName": "fleet-webhooks"},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    "settings": {
        "SMTP_HOST": "mail.example.com",
        "WEBHOOK_URLS": "https://hooks.example.com/kapsa",
        "OIDC_CLIENT_ID": "kapsa",
        "AUDIT_RETENTION_DAYS": 800,
    },
}
ALONE = {"operator": {"enabled": False}}


def pod_of(objects: list[dict[str, Any]]) -> Any:
    return only(objects, "Deployment", NAME)["spec"]["template"]["spec"]


def variables(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the environment of the manager, with a text in place of each secret."""
    entries = pod_of(objects)["containers"][0]["env"]
    return {
        each["name"]: each.get("value", "postgresql://x" if "DATABASE" in each["name"] else "s" * 24)
        for each in entries
    }


# -- what it renders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [FLEET_VALUES, ALL], ids=["required", "all"])
async def test_helm_finds_nothing_wrong(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"fleet": values}))
    code, out = await helm("lint", "--strict", f"--values={file}", CHART)
    assert code == 0, out


async def test_the_manager_alone_brings_no_right_in_its_cluster(tmp_path: Path) -> None:
    objects = await rendered(tmp_path, {**ALONE, "fleet": ALL})
    assert {each["metadata"]["name"] for each in objects} == {NAME}
    kinds = sorted(each["kind"] for each in objects)
    assert kinds == [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ]
    assert pod_of(objects)["automountServiceAccountToken"] is False
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False


async def test_values_become_settings_that_the_manager_accepts(tmp_path: Path) -> None:
    few = FleetSettings.from_environment(variables(await rendered(tmp_path, {"fleet": FLEET_VALUES})))
    assert (few.listen_address, few.listen_port, few.plain_http) == ("0.0.0.0", 8070, False)
    assert str(few.tls_certificate) == "/etc/kapsa/fleet/tls/tls.crt"
    assert few.jwt_issuer == "https://id.example.com"
    settings = FleetSettings.from_environment(variables(await rendered(tmp_path, {"fleet": ALL})))
    assert settings.public_url == "https://fleet.example.com"
    assert settings.audit_retention_days == 800
    assert settings.oidc_client_secret
    assert str(settings.smtp_password_file) == "/etc/kapsa/fleet/mail/password"
    assert str(settings.webhook_secret_file) == "/etc/kapsa/fleet/webhooks/secret"
    plain = {**FLEET_VALUES, "tls": {}, "plainHttp": True}
    settings = FleetSettings.from_environment(variables(await rendered(tmp_path, {"fleet": plain})))
    assert (settings.plain_http, settings.tls_certificate) == (True, None)


async def test_every_file_of_the_settings_is_a_mounted_secret(tmp_path: Path) -> None:
    objects = await rendered(tmp_path, {"fleet": ALL})
    pod = pod_of(objects)
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    files = {
        f"{mounts[volume['name']]}/{item['path']}": volume["secret"]["secretName"]
        for volume in pod["volumes"]
        for item in volume.get("secret", {}).get("items", ())
    }
    assert files == {
        "/etc/kapsa/fleet/encryption-keys/keys": "fleet-keys",
        "/etc/kapsa/fleet/tls/tls.crt": "fleet-tls",
        "/etc/kapsa/fleet/tls/tls.key": "fleet-tls",
        "/etc/kapsa/fleet/mail/password": "fleet-mail",
        "/etc/kapsa/fleet/webhooks/secret": "fleet-webhooks",
    }
    given = {value for value in variables(objects).values() if value.startswith("/etc/")}
    assert given == set(files)
    # With the fsGroup of the pod, 0440: the manager refuses keys that others can read.
    assert {each["secret"]["defaultMode"] for each in pod["volumes"] if "secret" in each} == {0o400}


async def test_vault_replaces_the_secret_with_the_keys(tmp_path: Path) -> None:
    vault = {"VAULT_ADDRESS": "https://vault.example.com", "VAULT_TOKEN_FILE": "/vault/token"}
    mount = {"name": "vault", "mountPath": "/vault"}
    values = {**FLEET_VALUES, "encryptionKeys": {}, "settings": vault, "volumeMounts": [mount]}
    objects = await rendered(tmp_path, {"fleet": {**values, "volumes": [{"name": "vault", "emptyDir": {}}]}})
    settings = FleetSettings.from_environment(variables(objects))
    assert (settings.vault_address, settings.encryption_keys_file) == (vault["VAULT_ADDRESS"], None)
    pod = pod_of(objects)
    assert {"name": "vault", "emptyDir": {}} in pod["volumes"]
    assert mount in pod["containers"][0]["volumeMounts"]
    assert "encryption-keys" not in {each["name"] for each in pod["volumes"]}


async def test_the_pod_is_locked_down_and_runs_what_the_image_has(tmp_path: Path) -> None:
    pod = pod_of(await rendered(tmp_path, {"fleet": FLEET_VALUES}))
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["args"] == ["fleet", "serve"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in dockerfile
    assert "fleet," in dockerfile.partition("pip install")[2].partition("\n")[0]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/health",
    }
    assert {each["scheme"] for each in probes.values()} == {"HTTPS"}


async def test_replicas_follow_the_triggers_of_the_autoscaler(tmp_path: Path) -> None:
    objects = await rendered(tmp_path, {"fleet": ALL}, "--kube-version=1.36.0")
    assert "replicas" not in only(objects, "Deployment", NAME)["spec"]
    scaler = only(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == NAME
    cpu, deployments = scaler["metrics"]
    assert cpu["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    assert deployments["external"] == {
        "metric": {"name": "deployments_active"},
        "target": {"type": "AverageValue", "averageValue": "15"},
    }
    behavior = scaler["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 300
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 900
    assert 70 * (1 - float(behavior["scaleDown"]["tolerance"])) == pytest.approx(30, abs=0.5)
    older = await rendered(tmp_path, {"fleet": ALL}, "--kube-version=1.34.0")
    assert "tolerance" not in only(older, "HorizontalPodAutoscaler")["spec"]["behavior"]["scaleDown"]


async def test_the_network_policy_admits_the_api_and_keeps_the_metadata_service_away(tmp_path: Path) -> None:
    policy = only(await rendered(tmp_path, {"fleet": ALL}), "NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "api"}], "from": ALL["networkPolicy"]["from"]}]  # type: ignore[index]
    dns, others = policy["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert [each["ipBlock"]["except"] for each in others["to"]] == [
        ["169.254.0.0/16"],
        ["fe80::/10", "fd00:ec2::254/128"],
    ]
    database = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 5432}]}
    narrow = {**FLEET_VALUES, "networkPolicy": {"egress": [database]}}
    policy = only(await rendered(tmp_path, {"fleet": narrow}), "NetworkPolicy")["spec"]
    assert policy["egress"][1:] == [database]
    assert policy["ingress"] == [{"ports": [{"port": "api"}]}]


async def test_the_network_policy_of_the_guide_is_rendered_as_it_is_written(tmp_path: Path) -> None:
    (block, _) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    written = yaml.safe_load(block)["fleet"]["networkPolicy"]
    objects = await rendered(tmp_path, {"fleet": {**FLEET_VALUES, "networkPolicy": written}})
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "api"}], "from": written["from"]}]
    assert policy["egress"][1:] == written["egress"]
    assert len(written["egress"]) == 2


async def test_the_rule_of_the_guide_for_an_external_metric_selects_what_the_autoscaler_needs(
    tmp_path: Path,
) -> None:
    (_, block) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (rule,) = yaml.safe_load(block)["rules"]["external"]
    ((metric, service),) = re.findall(r'^(\w+)\{service="([\w-]+)"\}$', rule["seriesQuery"])
    objects = await rendered(tmp_path, {"fleet": ALL})
    assert (
        only(objects, "HorizontalPodAutoscaler")["spec"]["metrics"][1]["external"]["metric"]["name"] == metric
    )
    assert only(objects, "Service", service)
    assert metric in GAUGES


async def test_metrics_are_scraped_with_a_token_or_not_at_all(tmp_path: Path) -> None:
    served = f"--api-versions={MONITOR}"
    with_token = {**FLEET_VALUES, "serviceMonitor": {"tokenSecretName": "fleet-metrics"}}
    objects = await rendered(tmp_path, {**ALONE, "fleet": with_token}, served)
    (endpoint,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "fleet-metrics", "key": "token"}
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": f"{NAME}.{HOME}.svc"})
    service = only(objects, "Service")
    selector = only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    assert [each["name"] for each in service["spec"]["ports"]] == [endpoint["port"]]
    without = await rendered(tmp_path, {**ALONE, "fleet": FLEET_VALUES}, served)
    assert "ServiceMonitor" not in {each["kind"] for each in without}


async def test_alerts_are_installed_where_metrics_are_scraped(tmp_path: Path) -> None:
    served = (f"--api-versions={MONITOR}", f"--api-versions={RULE}")
    monitored = {
        **FLEET_VALUES,
        "serviceMonitor": {"tokenSecretName": "fleet-metrics"},
        "alerts": {"runbooks": "https://git.example.com/kapsa/"},
    }
    objects = await rendered(tmp_path, {**ALONE, "fleet": monitored}, *served)
    (group,) = only(objects, "PrometheusRule")["spec"]["groups"]
    shipped = yaml.safe_load((Path(CHART) / "files" / "fleet-alerts.yaml").read_text())
    assert [each["expr"] for each in group["rules"]] == [each["expr"] for each in shipped]
    links = [each["annotations"]["runbook_url"] for each in group["rules"]]
    assert all(link.startswith("https://git.example.com/kapsa/docs/fleet/") for link in links)
    dashboard = json.loads(only(objects, "ConfigMap")["data"]["kapsa-fleet.json"])
    assert dashboard["uid"] == "kapsa-fleet"
    without = await rendered(tmp_path, {**ALONE, "fleet": FLEET_VALUES}, *served)
    assert "PrometheusRule" not in {each["kind"] for each in without}, (
        "an alert would fire for missing metrics"
    )


async def test_the_ingress_serves_its_host_with_the_certificate_of_the_values_and_nothing_else(
    tmp_path: Path,
) -> None:
    objects = await rendered(tmp_path, {**ALONE, "fleet": ALL})
    ingress = only(objects, "Ingress")["spec"]
    assert ingress["ingressClassName"] == "nginx"
    assert ingress["tls"] == [{"hosts": ["fleet.example.com"], "secretName": "web"}]
    (rule,) = ingress["rules"]
    assert rule["host"] == "fleet.example.com"
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/", "Prefix")
    assert path["backend"] == {"service": {"name": NAME, "port": {"name": "api"}}}
    assert "api" in {each["name"] for each in only(objects, "Service")["spec"]["ports"]}


async def test_a_drained_node_takes_one_replica_at_a_time(tmp_path: Path) -> None:
    objects = await rendered(tmp_path, {**ALONE, "fleet": ALL})
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


async def test_one_replica_needs_no_disruption_budget(tmp_path: Path) -> None:
    kinds = {
        each["kind"] for each in await rendered(tmp_path, {**ALONE, "fleet": {**FLEET_VALUES, "replicas": 1}})
    }
    assert "Deployment" in kinds
    assert "PodDisruptionBudget" not in kinds


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"database": {"secretName": ""}}, "fleet.database.secretName is empty: create a Secret with the URL"),
    ({"encryptionKeys": {"secretName": ""}}, "fleet.encryptionKeys.secretName is empty: create a Secret"),
    (
        {"authentication": {"issuer": ""}},
        "fleet.authentication.issuer and fleet.authentication.jwksUrl must be set",
    ),
    ({"authentication": {"jwksUrl": "http://id.example.com"}}, "/fleet/authentication/jwksUrl"),
    ({"tls": {"secretName": ""}}, "fleet.tls.secretName is empty: set it to a Secret"),
    ({"plainHttp": True}, "fleet.tls.secretName and fleet.plainHttp are both set"),
    ({"ingress": {"enabled": True, "host": "a.example.com"}}, "fleet.ingress.tlsSecretName must be set"),
    ({"ingress": {"host": "https://a.example.com"}}, "/fleet/ingress/host"),
    (
        {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 3}},
        "minReplicas is 5, which is more",
    ),
    (
        {"autoscaling": {"enabled": True, "idleCpuUtilization": 80}},
        "idleCpuUtilization is 80, but must be less",
    ),
    (
        {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}},
        "requests.cpu must be set",
    ),
    ({"serviceMonitor": {"enabled": True}}, "fleet.serviceMonitor.tokenSecretName or"),
    ({"settings": {"SMTPHOST": "a"}}, "fleet.settings.SMTPHOST is not a setting of the fleet manager"),
    ({"settings": {"LISTEN_PORT": 1}}, "fleet.settings.LISTEN_PORT is set by the chart: use fleet.port"),
    ({"settings": {"VAULT_TOKEN": "s"}}, "is set by the chart: use VAULT_TOKEN_FILE, with fleet.volumes"),
    ({"settings": {"ENCRYPTION_KEYS": "k:x"}}, "is set by the chart: use fleet.encryptionKeys"),
    ({"replicas": 0}, "/fleet/replicas"),
    ({"replica": 3}, "additional properties 'replica' not allowed"),
    ({"port": 443}, "/fleet/port"),
    ({"database": {"secretName": "Not A Name"}}, "/fleet/database/secretName"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
async def test_a_wrong_value_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    required, wrong = tmp_path / "required.yaml", tmp_path / "wrong.yaml"
    required.write_text(yaml.safe_dump({"fleet": FLEET_VALUES}))
    wrong.write_text(yaml.safe_dump({"fleet": changes}))
    code, out = await helm("template", "kapsa", CHART, f"--values={required}", f"--values={wrong}")
    assert code == 1, out
    assert message in out


async def test_a_release_of_nothing_is_refused() -> None:
    code, out = await helm("install", "kapsa", CHART, "--set=operator.enabled=false", "--dry-run=client")
    assert code == 1
    assert "operator.enabled and fleet.enabled are both false" in out


# -- on a cluster --------------------------------------------------------------------------------------------

INSTALLED = {
    "apps/v1/Deployment": NAME,
    "v1/ServiceAccount": NAME,
    "v1/Service": NAME,
    "policy/v1/PodDisruptionBudget": NAME,
    "networking.k8s.io/v1/NetworkPolicy": NAME,
    "networking.k8s.io/v1/Ingress": NAME,
    MONITOR: NAME,
}
SCALER = {"autoscaling/v2/HorizontalPodAutoscaler": NAME}


@pytest_asyncio.fixture
async def empty(engine: str) -> AsyncIterator[DevCluster]:
    """A separate cluster, with the kind of Prometheus."""
    async with DevCluster(engine) as cluster:  # type: ignore[arg-type]
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            await create_open_kinds(client, MONITOR)
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_release_is_installed_upgraded_and_uninstalled(empty: DevCluster, tmp_path: Path) -> None:
    wait = ("--wait", "--timeout=300s")
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(yaml.safe_dump({**ALONE, "fleet": {**ALL, "autoscaling": {"enabled": False}}}))
    second.write_text(yaml.safe_dump({**ALONE, "fleet": {**ALL, "logging": {"level": "DEBUG"}}}))
    async with Client.connect(kubeconfig=empty.kubeconfig) as client:
        output = await act(empty, "install", "kapsa", CHART, "--create-namespace", f"--values={first}", *wait)
        assert f"rollout status deployment/{NAME}" in output
        assert "environments operator" not in output
        for kind, name in INSTALLED.items():
            assert await exists(client, kind, name), kind
        deployment = await client.get("apps/v1/Deployment", NAME, namespace=HOME)
        assert (deployment["spec"]["replicas"], deployment["status"]["availableReplicas"]) == (2, 2)
        for manifest in await rendered(tmp_path, {"fleet": ALL}):
            await client.apply(
                manifest, force=True, field_manager="strict", field_validation="Strict", dry_run=True
            )

        await act(empty, "upgrade", "kapsa", CHART, f"--values={second}", *wait)
        deployment = await client.get("apps/v1/Deployment", NAME, namespace=HOME)
        environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "KAPSA_FLEET_LOG_LEVEL", "value": "DEBUG"} in environment
        for kind, name in SCALER.items():
            assert await exists(client, kind, name), kind

        await act(empty, "uninstall", "kapsa", *wait)
        await eventually_all_gone(client, INSTALLED | SCALER)
