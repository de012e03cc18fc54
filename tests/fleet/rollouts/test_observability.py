"""A rollout by the real Helm, as a monitoring system sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kapsa.devcluster.faults.gate import FaultGate
from kapsa.devcluster.faults.plan import FaultPlan
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.fleet.infrastructure.telemetry import rollout_traces
from kapsa.fleet.infrastructure.telemetry.rollout_traces import RolloutTraces
from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import NAMESPACE, LiveFleet, live_fleet, sample_chart
from tests.fleet.seed_metrics import seed_values

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

SECONDS = 400
CLUSTERS = {"dev-1": "Dev", "dev-2": "Dev"}


async def scraped(fleet: LiveFleet) -> dict[str, float]:
    """Return the metrics of the specification, freshly counted, from the endpoint of the manager."""
    services = fleet.server.services
    await services.telemetry.refresh(services.database, services.health.operators)
    response = await fleet.admin.http.get(f"{fleet.server.http.url}/metrics")
    assert response.status_code == 200, response.text
    return seed_values(response.text)


async def test_each_metric_of_the_specification_moves_with_a_rollout(settings: FleetSettings) -> None:
    async with live_fleet(settings, CLUSTERS) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        before = await scraped(fleet)
        soaking = {"percentages": [50, 100], "evaluationPeriod": "PT5S"}
        first = await fleet.deploy("1.0.0", "Canary", soaking)
        assert (await scraped(fleet))["deployments_active"] == 1
        await fleet.finish(first)
        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        await fleet.admin.post(f"/deployments/{second}/rollback", {"reason": "shown to work"})
        await fleet.finish(second, "RolledBack")
        refused = await fleet.deploy("1.0.0", "Direct", values={"replicas": "many"})
        await fleet.finish(refused, "Failed")
        healthy = await eventually(
            lambda: scraped(fleet),
            lambda seen: seen["operators_healthy"] == 1,
            "a healthy operator",
            seconds=SECONDS,
        )
        for cluster in fleet.clusters.values():
            cluster.workloads.crash("*")
        after = await eventually(
            lambda: scraped(fleet),
            lambda seen: seen["operators_unhealthy"] == 1,
            "an unhealthy operator",
            seconds=SECONDS,
        )
        moved = {name: after[name] - before[name] for name in before}
        assert moved["operators_deployed_total"] == moved["operator_deploy_duration_seconds_count"] == 2
        assert moved["operators_rollback_total"] == moved["operator_rollback_duration_seconds_count"] == 1
        assert moved["operators_failed_total"] == 1
        assert moved["helm_install_duration_seconds_count"] >= 6, "two installs, two upgrades, two rollbacks"
        assert moved["crds_validated_total"] >= 4
        assert moved["operator_healthcheck_duration_seconds_count"] > 0
        assert after["clusters_registered_total"] == after["clusters_count"] == 2
        assert (healthy["operators_count"], healthy["deployments_active"]) == (1, 0)


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request as the API server of a cluster received it."""

    method: str
    path: str
    trace_parent: str


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[ReceivedRequest]:
    """The requests that reach the API servers, in order."""
    requests: list[ReceivedRequest] = []
    serve = FaultGate.serve

    async def recording(gate: FaultGate, request: Request, *arguments: Any) -> Reply:
        trace_parent = request.headers.get("traceparent", "")
        requests.append(ReceivedRequest(request.method, request.path, trace_parent))
        return await serve(gate, request, *arguments)

    monkeypatch.setattr(FaultGate, "serve", recording)
    return requests


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A process has one provider for good; a test may not take it.
    monkeypatch.setattr(rollout_traces, "find_tracing", lambda: RolloutTraces(provider))
    return exporter


def paths(spans: Sequence[ReadableSpan]) -> set[str]:
    """Return the names on the way from the root to each span."""
    by_id = {span.context.span_id: span for span in spans if span.context is not None}

    def path(span: ReadableSpan) -> str:
        parent = by_id.get(span.parent.span_id) if span.parent is not None else None
        return f"{path(parent)} > {span.name}" if parent is not None else span.name

    return {path(span) for span in spans}


async def test_a_rollout_exports_the_span_tree_and_its_requests_carry_the_trace_of_the_client(
    settings: FleetSettings, exporter: InMemorySpanExporter, received: list[ReceivedRequest]
) -> None:
    trace_id = f"{0xFEED:032x}"
    async with live_fleet(settings, {"dev-1": "Dev"}, faults={"dev-1": FaultPlan()}) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"))
        response = await fleet.admin.http.post(
            "/deployments",
            json=fleet.request("1.0.0", "Direct"),
            headers={"traceparent": f"00-{trace_id}-{0xBEEF:016x}-01"},
        )
        assert response.status_code == 202, response.text
        deployment = response.json()["id"]
        await fleet.finish(deployment)
        await fleet.admin.post(f"/deployments/{deployment}/rollback", {"reason": "to see its spans"})
        await fleet.finish(deployment, "RolledBack")
    spans = exporter.get_finished_spans()
    assert {span.context.trace_id for span in spans if span.context is not None} == {0xFEED}
    (root,) = (span for span in spans if span.name == "operator.deploy")
    assert root.parent is not None
    assert root.parent.span_id == 0xBEEF
    assert paths(spans) >= {
        "operator.deploy",
        "operator.deploy > operator.validate",
        "operator.deploy > cluster.connect",
        "operator.deploy > helm.install",
        "operator.deploy > helm.install > crd.apply",
        "operator.deploy > helm.install > controller.deploy",
        "operator.deploy > operator.healthcheck",
        "operator.deploy > operator.healthcheck > pod.healthcheck",
        "operator.deploy > operator.healthcheck > webhook.healthcheck",
        "operator.deploy > operator.healthcheck > crd.reconciliation.check",
        "operator.deploy > operator.rollback",
        "operator.deploy > operator.rollback > helm.uninstall",
    }
    by_id = {f"{span.context.span_id:016x}": span.name for span in spans if span.context is not None}
    carried = [(each, each.trace_parent.split("-")) for each in received if each.trace_parent]
    assert {parts[1] for _, parts in carried} == {trace_id}
    writes = {
        (by_id[parts[2]], each.path.rpartition("/")[2]) for each, parts in carried if each.method != "GET"
    }
    assert ("crd.apply", "gadgets.gadgets.example.com") in writes
    assert {name for name, _ in writes} >= {"operator.validate", "crd.apply", "controller.deploy"}
    releases = [
        by_id.get(each.trace_parent[36:52], "untraced")
        for each in received
        if each.method == "POST" and each.path.endswith(f"/namespaces/{NAMESPACE}/secrets")
    ]
    assert releases, "Helm stores its releases in Secrets"
    assert set(releases) == {"controller.deploy"}
