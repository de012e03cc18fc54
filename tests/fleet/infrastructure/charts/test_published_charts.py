"""Charts that are fetched from real servers on loopback, and inspected by the real helm."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.chart_server import ChartServer, pack_chart
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.operators import HttpChart, OciChart, UploadedChart
from kapsa.fleet.infrastructure.charts.published_charts import PublishedCharts
from kapsa.fleet.orchestrator.ports.charts import InspectedChart, RepositoryLogin
from tests.fleet.charts import crd, operator_chart, operator_files

pytestmark = pytest.mark.sampled(8, of="module")

PASSWORD = "hunter2-very-secret"


@pytest.fixture
def server() -> Iterator[ChartServer]:
    with ChartServer() as running:
        yield running


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest_asyncio.fixture
async def charts() -> AsyncIterator[PublishedCharts]:
    http = GuardedHttpClient(address_guard=None, timeout=60)
    yield PublishedCharts(http, allow_http=True)
    await http.close()


async def inspect(charts: PublishedCharts, content: bytes, **options: Any) -> InspectedChart:
    defaults: dict[str, Any] = {
        "chart": "widget",
        "version": "",
        "namespace": "widgets",
        "values": {},
        "secret_values": {},
    }
    return await charts.inspect(content, **{**defaults, **options})


async def test_the_newest_release_or_the_named_version_is_fetched(
    server: ChartServer, charts: PublishedCharts
) -> None:
    archives = {version: operator_chart(version) for version in ("1.9.0", "v1.10.0", "2.0.0-rc.1")}
    for archive in archives.values():
        server.add(archive)
    source = HttpChart(server.url, "widget")
    assert await charts.fetch(source, "", None) == archives["v1.10.0"]
    assert await charts.fetch(source, "1.10.0", None) == archives["v1.10.0"]
    assert await charts.fetch(source, "2.0.0-rc.1", None) == archives["2.0.0-rc.1"]
    with pytest.raises(InvalidInput, match=r"has no version 3\.0\.0; its newest is 2\.0\.0-rc\.1") as error:
        await charts.fetch(source, "3.0.0", None)
    assert error.value.fields[0].path == "/source/repository"


async def test_a_chart_is_fetched_from_a_registry_with_a_login(
    registry: RegistryServer, charts: PublishedCharts
) -> None:
    archive = operator_chart("1.0.0+build.7")
    registry.push_chart("charts/widget", "1.0.0_build.7", archive)
    registry.login = ("robot", PASSWORD)
    source = OciChart(f"oci://{registry.endpoint}/charts/widget")
    assert await charts.fetch(source, "", RepositoryLogin("robot", PASSWORD)) == archive
    with pytest.raises(InvalidInput, match="credentials are required"):
        await charts.fetch(source, "", None)
    with pytest.raises(InvalidInput, match="rejected") as error:
        await charts.fetch(source, "", RepositoryLogin("robot", "another-password"))
    assert "another-password" not in str(error.value)
    assert error.value.fields[0].path == "/source/reference"


async def test_unreachable_and_malformed_repositories_are_named(
    server: ChartServer, charts: PublishedCharts
) -> None:
    server.index = b"<html>"
    with pytest.raises(InvalidInput, match="not the index of a chart repository"):
        await charts.fetch(HttpChart(server.url, "widget"), "", None)
    with pytest.raises(InvalidInput, match=r"Cannot connect|refused"):
        await charts.fetch(HttpChart("http://127.0.0.1:1", "widget"), "", None)
    with pytest.raises(InvalidInput, match="uploaded"):
        await charts.fetch(UploadedChart("widget"), "", None)


async def test_credentials_in_an_address_are_refused_and_not_repeated(charts: PublishedCharts) -> None:
    for source in (
        HttpChart(f"http://robot:{PASSWORD}@127.0.0.1:1", "widget"),
        OciChart(f"oci://robot:{PASSWORD}@127.0.0.1:1/charts/widget"),
        OciChart(f"oci://{PASSWORD}@127.0.0.1:1/charts/widget"),
    ):
        with pytest.raises(InvalidInput, match="must not contain a user name or password") as error:
            await charts.fetch(source, "", None)
        assert PASSWORD not in str(error.value)


async def test_facts_are_learned_from_lint_and_renders(charts: PublishedCharts) -> None:
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "fixed"},
        "webhooks": [],
    }
    conversion = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com"}},
    }
    gadgets = crd("gadgets", scope="Cluster", conversion=conversion)
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "{{ .Release.Name }}"}}
    files = {
        "templates/webhook.yaml": json.dumps(webhook),
        "templates/gadgets.yaml": json.dumps(gadgets),
        "templates/gadget.yaml": json.dumps(gadget),
        "templates/random.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: random}\ndata: {key: {{ randAlphaNum 12 | b64enc }}}\n",
    }
    archive = operator_chart("v1.2.3", files, appVersion="9.1", kubeVersion=">=1.30.0-0")
    chart = await inspect(charts, archive, version="1.2.3")
    facts = chart.facts
    assert chart.version == "v1.2.3"
    assert (facts.crds_in_crds, facts.crds_in_templates) == (
        ("widgets.example.com",),
        ("gadgets.example.com",),
    )
    assert facts.cluster_scoped == (
        "ClusterRole/kapsa-probe-one-widget",
        "Gadget/kapsa-probe-one",
        "ValidatingWebhookConfiguration/fixed",
    )
    assert facts.webhooks == (
        "CustomResourceDefinition/gadgets.example.com",
        "ValidatingWebhookConfiguration/fixed",
    )
    assert (facts.deterministic, facts.names_follow_release) == (False, False)
    assert (facts.app_version, facts.kube_version) == ("9.1", ">=1.30.0-0")
    assert [(each.name, each.location) for each in chart.crds] == [
        ("gadgets.example.com", "templates"),
        ("widgets.example.com", "crds"),
    ]
    assert chart.crds[1].definition == crd()
    assert any("v1.2.3" in warning for warning in chart.warnings)


async def test_a_plain_chart_is_deterministic_and_its_names_follow_the_release(
    charts: PublishedCharts,
) -> None:
    facts = (await inspect(charts, operator_chart())).facts
    assert (facts.deterministic, facts.names_follow_release) == (True, True)


@pytest.mark.parametrize("constraint", ["<1.25.0-0", ">=1.99.0-0", ">1.30.0 <1.31.0 || 1.19.x"])
async def test_a_chart_that_excludes_the_version_that_helm_assumes_is_rendered_for_one_that_it_accepts(
    charts: PublishedCharts, constraint: str
) -> None:
    chart = await inspect(charts, operator_chart(kubeVersion=constraint))
    assert (chart.facts.kube_version, chart.facts.names_follow_release) == (constraint, True)


async def test_a_chart_that_accepts_no_version_of_kubernetes_is_refused(charts: PublishedCharts) -> None:
    with pytest.raises(InvalidInput, match=r"needs Kubernetes '>1\.30 <1\.20'.*Correct kubeVersion"):
        await inspect(charts, operator_chart(kubeVersion=">1.30 <1.20"))


async def test_a_name_that_cannot_be_suffixed_is_a_fact_about_the_chart(charts: PublishedCharts) -> None:
    role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: fixed}\n"
    facts = (await inspect(charts, operator_chart("1.0.0", {"templates/role.yaml": role}))).facts
    assert (facts.names_follow_release, facts.blue_green_refusal) == (False, "")
    fast = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: none\n"
    facts = (await inspect(charts, operator_chart("1.0.0", {"templates/class.yaml": fast}))).facts
    assert "StorageClass fast is shared by both releases" in facts.blue_green_refusal


async def test_hooks_and_subcharts_in_archives_count(charts: PublishedCharts) -> None:
    hook = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "hook", "annotations": {"helm.sh/hook": "pre-install"}},
    }
    subchart = pack_chart("sub", "1.0.0", {"crds/gadgets.json": json.dumps(crd("gadgets"))})
    files = {"templates/hook.yaml": json.dumps(hook), "charts/sub-1.0.0.tgz": subchart}
    dependencies = [{"name": "sub", "version": "1.0.0", "repository": "https://charts.example.com"}]
    chart = await inspect(charts, operator_chart("1.0.0", files, dependencies=dependencies))
    assert "ClusterRole/hook" in chart.facts.cluster_scoped
    assert chart.facts.crds_in_crds == ("gadgets.example.com", "widgets.example.com")


@pytest.mark.parametrize(
    ("archive", "options", "reason", "field"),
    [
        (operator_chart(), {"chart": "other"}, "has the chart 'widget', not 'other'", "/source/chart"),
        (operator_chart(), {"version": "1.0.1"}, r"has version 1\.0\.0, not 1\.0\.1", "/version"),
        (pack_chart("widget", "1.0.0", type="library"), {}, "library chart", "/source/chart"),
        (operator_chart("1.0.0", {"templates/a.yaml": "{{ .Values.a.b }}"}), {}, "helm lint", "/source"),
        (
            operator_chart("1.0.0", {"templates/a.yaml": '{{ fail "give a port" }}'}),
            {},
            "give a port",
            "/source",
        ),
        (operator_chart("1.0.0", {"templates/a.yaml": json.dumps(crd())}), {}, "more than once", None),
        (
            operator_chart(
                "1.0.0",
                {
                    "templates/a.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nspec: {}\n"
                },
            ),
            {},
            "name 'a'",
            None,
        ),
        (operator_chart("1.0.0", {"../evil": "x"}), {}, "leads out", "/archive"),
        (b"not an archive", {}, "not a gzip file", "/archive"),
        (pack_chart("widget", "one"), {}, "semantic version", "/archive"),
    ],
)
async def test_a_chart_that_cannot_be_used_is_refused_with_the_reason(
    charts: PublishedCharts, archive: bytes, options: dict[str, Any], reason: str, field: str | None
) -> None:
    with pytest.raises(InvalidInput, match=reason) as error:
        await inspect(charts, archive, **options)
    assert [each.path for each in error.value.fields] == ([field] if field else [])


async def test_a_secret_value_is_not_in_the_error_of_helm(charts: PublishedCharts) -> None:
    archive = operator_chart("1.0.0", {"templates/a.yaml": "{{ fail .Values.password }}", **operator_files()})
    with pytest.raises(InvalidInput) as error:
        await inspect(charts, archive, secret_values={"password": PASSWORD})
    assert PASSWORD not in str(error.value) + error.value.fields[0].message
