"""Charts that are kept by digest, rendered for a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.operators import ChartFacts, ManagedOperator, OperatorVersion, UploadedChart
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.release_renderer import StoredChartRenderer
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.ports.plan_sources import ChartRenderRequest, KubernetesUnsupported
from tests.fleet.charts import operator_chart

PASSWORD = "hunter2-very-secret"
RELEASE = ReleaseRef("widget", "widgets")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def store(database: Database, files: Mapping[str, str | bytes], **metadata: str) -> str:
    """Store a version of an operator. Return the digest of its chart."""
    content = operator_chart("1.0.0", files, **metadata)
    digest = read_archive(content).digest
    operator = ManagedOperator(uuid.uuid4(), "widget", "widgets", UploadedChart("widget"), {}, {}, NOW, "ada")
    version = OperatorVersion(operator.id, "1.0.0", digest, ChartFacts(), NOW, "ada")
    async with database.transaction() as connection:
        assert await PostgresOperators().insert(connection, operator)
        assert await PostgresOperators().insert_version(connection, version, content, ())
    return digest


async def test_a_stored_chart_is_rendered_with_values_and_the_version_of_the_cluster(
    database: Database,
) -> None:
    capabilities = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: v}\ndata: {v: {{ .Capabilities.KubeVersion.Version }}}\n"
    digest = await store(database, {"templates/version.yaml": capabilities})
    renderer = StoredChartRenderer(database, PostgresOperators())
    request = ChartRenderRequest(digest, RELEASE, {"replicas": 7}, "v1.34.5-eks-036c24b")
    manifest = await renderer.render(request)
    assert b'replicas: "7"' in manifest
    assert b"v1.34.5-eks-036c24b" in manifest
    assert b"CustomResourceDefinition" not in manifest
    assert await renderer.render(request) == manifest


async def test_a_chart_that_leaves_the_version_of_the_cluster_out_is_recognized(database: Database) -> None:
    digest = await store(database, {}, kubeVersion=">=1.99.0")
    renderer = StoredChartRenderer(database, PostgresOperators())
    with pytest.raises(KubernetesUnsupported, match=r"requires kubeVersion: >=1\.99\.0"):
        await renderer.render(ChartRenderRequest(digest, RELEASE, {}, "v1.36.0"))


async def test_a_chart_that_does_not_render_is_refused_without_its_values(database: Database) -> None:
    template = '{{ if .Values.password }}{{ fail (printf "bad password %s" .Values.password) }}{{ end }}'
    digest = await store(database, {"templates/bad.yaml": template})
    renderer = StoredChartRenderer(database, PostgresOperators())
    with pytest.raises(InvalidInput, match="bad password") as error:
        await renderer.render(ChartRenderRequest(digest, RELEASE, {"password": PASSWORD}, ""))
    assert PASSWORD not in str(error.value) + error.value.fields[0].message
    with pytest.raises(InvalidInput, match="not stored"):
        await renderer.render(ChartRenderRequest("sha256:" + "0" * 64, RELEASE, {}, ""))


async def test_the_second_release_of_blue_green_is_rendered_at_rest_under_names_of_its_own(
    database: Database,
) -> None:
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: widget}\n"
        "spec: {replicas: {{ .Values.replicas }}, selector: {}, template: {}}\n"
    )
    webhook = (
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n"
        "metadata: {name: '{{ .Values.fixed | default .Release.Name }}'}\nwebhooks: [{name: checks.example.com}]\n"
    )
    digest = await store(
        database, {"templates/deployment.yaml": deployment, "templates/webhook.yaml": webhook}
    )
    renderer = StoredChartRenderer(database, PostgresOperators())
    green = ReleaseRef("widget-green", "green")
    request = ChartRenderRequest(digest, green, {"replicas": 3, "fixed": "checks"}, "", suffix_names=True)
    manifest = await renderer.render(request)
    objects = {each["kind"]: each for each in load_objects(manifest, "the manifest")}
    assert objects["Deployment"]["spec"]["replicas"] == 0
    assert objects["Deployment"]["metadata"]["annotations"] == {"fleet.kapsa-project.io/replicas": "3"}
    webhooks = objects["ValidatingWebhookConfiguration"]
    assert webhooks["metadata"]["name"] == "checks-green"
    assert webhooks["webhooks"][0]["matchConditions"] == [
        {"name": "fleet.kapsa-project.io/idle", "expression": "false"}
    ]
    assert objects["ClusterRole"]["metadata"]["name"] == "widget-green-widget"
    assert await renderer.render(request) == manifest


async def test_a_chart_with_a_daemon_set_is_refused_for_blue_green(database: Database) -> None:
    agent = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\n"
    digest = await store(database, {"templates/agent.yaml": agent})
    renderer = StoredChartRenderer(database, PostgresOperators())
    request = ChartRenderRequest(digest, ReleaseRef("widget-green", "green"), {}, "", suffix_names=True)
    with pytest.raises(InvalidInput, match="DaemonSet agent cannot be scaled to zero"):
        await renderer.render(request)


async def test_a_key_that_the_values_repeat_is_refused_for_blue_green_without_them(
    database: Database,
) -> None:
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: log}\ndata:\n  level: info\n"
    digest = await store(database, {"templates/log.yaml": template + "  {{ .Values.key }}: debug\n"})
    renderer = StoredChartRenderer(database, PostgresOperators())
    values = {"key": "level"}
    await renderer.render(ChartRenderRequest(digest, RELEASE, values, ""))
    request = ChartRenderRequest(digest, ReleaseRef("widget-green", "green"), values, "", suffix_names=True)
    with pytest.raises(InvalidInput, match="the chart does not render with these values: ") as error:
        await renderer.render(request)
    assert error.value.fields[0].path == "/values"
