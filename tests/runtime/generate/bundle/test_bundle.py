"""The chart and the plain manifests of an operator: what they hold, and which operators cannot be bundled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    Context,
    Controller,
    CustomResource,
    Operator,
    Spec,
    StaticClusters,
    Status,
    ValidatingWebhook,
    Webhooks,
    allow,
)
from kapsa.runtime.generate.bundle.chart import chart_files
from kapsa.runtime.generate.bundle.facts import OperatorImage, UnbundlableError
from kapsa.runtime.generate.bundle.manifests import plain_manifests
from kapsa.runtime.generate.bundle.workload import InstallationSettings
from kapsa.runtime.operator.bundle_source import bundle_facts

IMAGE = OperatorImage.parse("registry.example.com/shops/shop:1.2")


class ShopSpec(Spec):
    greeting: str = "hello"
    """Shown to visitors. A template such as {{ .Name }} is not evaluated."""


class Shop(CustomResource[ShopSpec, Status], group="bundle.example.com", version="v1"):
    """A shop."""


class ShopController(Controller[Shop]):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, shop: Shop, ctx: Context[Shop]) -> None: ...


class ShopValidator(ValidatingWebhook[Shop]):
    def validate(self, request: AdmissionRequest[Shop]) -> AdmissionResponse:
        return allow()


def operator(**settings: Any) -> Operator:
    return Operator(controllers=[ShopController()], **{"leader_election": "shop-operator", **settings})


def served_by_service(**settings: Any) -> Webhooks:
    return Webhooks(ShopValidator(), service="shop-webhooks", **settings)


def chart(declared: Operator, **settings: Any) -> dict[str, str]:
    return chart_files(bundle_facts(declared), IMAGE, **{"version": "1.0.0", "replicas": 2, **settings})


def manifests(declared: Operator, **settings: Any) -> list[dict[str, Any]]:
    installation = InstallationSettings(
        **{"namespace": "shop-operator-system", "labels": {}, "image": str(IMAGE), "replicas": 2, **settings}
    )
    return plain_manifests(bundle_facts(declared), installation, monitor=True)


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (match,) = [each for each in objects if each["kind"] == kind]
    return match


def written(files: dict[str, str], directory: Path) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_tool("helm").path, *arguments], capture_output=True, text=True, timeout=120)


def rendered(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    result = helm("template", "shop", directory, "--namespace=shop-operator-system", *arguments)
    assert result.returncode == 0, result.stderr
    return [each for each in yaml.safe_load_all(result.stdout) if each]


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ({}, [], "", None)}
    return [without_empty(each) for each in value] if isinstance(value, list) else value


def by_name(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return objects without what differs on purpose: the labels and annotations of Helm."""
    named = {}
    for each in objects:
        metadata = {
            key: value for key, value in each["metadata"].items() if key not in ("labels", "annotations")
        }
        named[f"{each['kind']} {each['metadata']['name']}"] = without_empty({**each, "metadata": metadata})
    return named


def test_the_same_operator_gives_the_same_bytes() -> None:
    declared = {"webhooks": served_by_service(), "namespaces": ["b", "a"]}
    assert chart(operator(**declared)) == chart(operator(**declared))
    assert manifests(operator(**declared)) == manifests(operator(**declared))


def test_helm_renders_what_the_plain_manifests_say(tmp_path: Path) -> None:
    declared = operator(webhooks=served_by_service())
    directory = written(chart(declared), tmp_path)
    assert helm("lint", "--strict", directory).returncode == 0
    objects = rendered(directory, "--api-versions=monitoring.coreos.com/v1/ServiceMonitor")
    plain = [each for each in manifests(declared) if each["kind"] != "Namespace"]
    assert by_name(objects) == by_name(plain)
    assert {each["kind"] for each in objects} >= {"ServiceMonitor", "PodDisruptionBudget", "Deployment"}


def test_braces_of_a_description_reach_the_cluster_as_they_are(tmp_path: Path) -> None:
    crd = only(rendered(written(chart(operator()), tmp_path)), "CustomResourceDefinition")
    assert "{{ .Name }}" in json.dumps(crd)
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_reserved_character_in_a_description_is_refused() -> None:
    class OddSpec(Spec):
        size: int = 1
        """A size\ue000of something."""

    class Odd(CustomResource[OddSpec, Status], group="bundle.example.com", version="v1"):
        """Odd."""

    class OddController(Controller[Odd]):
        async def reconcile(self, odd: Odd, ctx: Context[Odd]) -> None: ...

    with pytest.raises(UnbundlableError, match="reserved in charts"):
        chart(Operator(controllers=[OddController()]), replicas=1)


def test_values_are_written_as_data_and_cannot_change_the_manifest(tmp_path: Path) -> None:
    directory = written(chart(operator()), tmp_path)
    values = tmp_path / "hostile.yaml"
    values.write_text(yaml.safe_dump({"args": ['"]\nhostNetwork: true'], "priorityClassName": "a\nb: c"}))
    pod = only(rendered(directory, f"--values={values}"), "Deployment")["spec"]["template"]["spec"]
    assert "hostNetwork" not in pod
    assert pod["containers"][0]["args"] == ['"]\nhostNetwork: true']
    assert pod["priorityClassName"] == "a\nb: c"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replicaCount=3", "replicaCount"),
        ("replicas=2", "replicas"),
        ("image.digest=latest", "digest"),
        ("serviceMonitor.interval=often", "interval"),
    ],
)
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, value: str, message: str) -> None:
    directory = written(chart(operator(leader_election=None), replicas=1), tmp_path)
    result = helm("template", "shop", directory, f"--set={value}")
    assert result.returncode != 0
    assert message in result.stderr


def test_an_operator_without_election_never_runs_twice() -> None:
    deployment = only(manifests(operator(leader_election=None), replicas=1), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    schema = json.loads(chart(operator(leader_election=None), replicas=1)["values.schema.json"])
    assert schema["properties"]["replicas"]["maximum"] == 1


def test_the_replicas_of_a_sharded_operator_are_described_as_all_at_work() -> None:
    values = chart(operator(leader_election=None, sharding="shops"), replicas=3)["values.yaml"]
    assert "All replicas work, each on its part of the resources." in values
    assert "leads" not in values
    assert yaml.safe_load(values)["replicas"] == 3


def test_the_chart_warns_that_deleting_crds_is_not_limited_to_an_uninstall() -> None:
    values = chart(operator())["values.yaml"]
    assert "an upgrade to a chart without them, or with install: false" in values.replace("\n# ", " ")


def test_the_pod_is_locked_down_and_has_time_to_stop() -> None:
    pod = only(manifests(operator(shutdown_grace=99.5)), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["terminationGracePeriodSeconds"] > 100


def test_a_role_of_a_watched_namespace_and_that_of_the_release_may_meet_in_one(tmp_path: Path) -> None:
    declared = operator(namespaces=["shop-operator-system", "team-a"])
    roles = [each for each in rendered(written(chart(declared), tmp_path)) if each["kind"] == "Role"]
    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in roles]
    assert sorted(names) == [
        ("shop-operator-system", "shop-operator"),
        ("shop-operator-system", "shop-operator-home"),
        ("team-a", "shop-operator"),
    ]


def test_ports_and_paths_follow_the_declaration() -> None:
    declared = operator(metrics_port=9000, health_port=9000, metrics_path="/m", liveness_path="/l")
    objects = manifests(declared)
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9000}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/l", "port": "metrics"}
    assert only(objects, "ServiceMonitor")["spec"]["endpoints"][0]["path"] == "/m"


def test_an_operator_without_metrics_or_probes_gets_none() -> None:
    declared = operator(metrics_port=None, health_port=None)
    assert not {"Service", "ServiceMonitor"} & {each["kind"] for each in manifests(declared)}
    assert "templates/servicemonitor.yaml" not in chart(declared)
    container = only(manifests(declared), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "livenessProbe" not in container


def test_a_chart_whose_webhooks_have_a_namespace_is_installed_nowhere_else(tmp_path: Path) -> None:
    declared = operator(webhooks=served_by_service(namespace="shop-operator-system"))
    directory = written(chart(declared), tmp_path)
    assert rendered(directory)
    elsewhere = helm("template", "shop", directory, "--namespace=elsewhere")
    assert "install this chart in the namespace shop-operator-system" in elsewhere.stderr
    with pytest.raises(UnbundlableError, match="declared in the namespace shop-operator-system"):
        bundle_facts(declared).home("elsewhere")


def test_certificates_from_a_secret_are_mounted_where_the_operator_reads_them(tmp_path: Path) -> None:
    declared = operator(webhooks=served_by_service(cert_dir="/certs"))
    directory = written(chart(declared, certificate_secret="shop-tls"), tmp_path)
    pod = only(rendered(directory), "Deployment")["spec"]["template"]["spec"]
    assert {"name": "webhook-certificates", "secret": {"secretName": "shop-tls"}} in pod["volumes"]
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["webhook-certificates"] == "/certs"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics_port": 0}, "metrics_port is 0"),
        ({"health_port": 0}, "health_port is 0"),
        ({"clusters": StaticClusters({})}, "works in other clusters"),
        ({"host": "127.0.0.1"}, "nothing outside the pod"),
        ({"host": "localhost"}, "nothing outside the pod"),
        ({"webhooks": Webhooks(ShopValidator(), url="https://laptop.example.com")}, "outside the cluster"),
        ({"webhooks": served_by_service(port=0)}, "port of the webhooks is 0"),
        ({"name": "Shop_Operator"}, "invalid name"),
        ({"name": "s" * 60}, "at most 52"),
    ],
    ids=lambda each: each if isinstance(each, str) else next(iter(each)),
)
def test_an_operator_that_cannot_run_in_a_pod_as_declared_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnbundlableError, match=message):
        bundle_facts(operator(**settings))


@pytest.mark.parametrize("image", ["", "Shop:1", "shop:", "shop:1 --privileged", "shop@sha256:12", "-shop"])
def test_an_invalid_image_is_refused(image: str) -> None:
    with pytest.raises(UnbundlableError, match="invalid image"):
        OperatorImage.parse(image)


@pytest.mark.parametrize("image", ["shop", "localhost:5000/a/shop:1", f"shop:1@sha256:{'a' * 64}"])
def test_an_image_is_taken_apart_and_put_together(image: str) -> None:
    assert str(OperatorImage.parse(image)) == image


def test_a_tag_of_digits_is_not_taken_for_a_port() -> None:
    assert OperatorImage.parse("shop:1") == OperatorImage("shop", "1")
    assert OperatorImage.parse("localhost:5000/shop") == OperatorImage("localhost:5000/shop")


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0-", "01.0.0"])
def test_a_chart_needs_a_semantic_version(version: str) -> None:
    with pytest.raises(UnbundlableError, match="semantic version"):
        chart(operator(), version=version)
