"""The spans of rollouts in virtual time, as an exporter gets them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.telemetry.rollout_metrics import RolloutMetrics
from kapsa.fleet.infrastructure.telemetry.rollout_telemetry import RolloutTelemetry
from kapsa.fleet.infrastructure.telemetry.rollout_traces import RolloutTraces
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector, DeploymentRequest, StrategyName
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

CLUSTERS = ("dev-1", "dev-2")
CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=timedelta(minutes=1))
CALLER = f"00-{0xABC:032x}-{0xDEF:016x}-01"


class Traces:
    """A reporter, and the spans that it has exported."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = provider or TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reporter = RolloutTelemetry(RolloutMetrics(CollectorRegistry()), RolloutTraces(provider))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def only(self, name: str) -> ReadableSpan:
        (span,) = (each for each in self.spans if each.name == name)
        return span


def names_below(spans: list[ReadableSpan], parent: ReadableSpan) -> dict[str, set[str]]:
    """Return the clusters for which a span has children of each name."""
    assert parent.context is not None
    result: dict[str, set[str]] = {}
    for span in spans:
        if span.parent is not None and span.parent.span_id == parent.context.span_id:
            assert span.context is not None
            assert span.context.trace_id == parent.context.trace_id
            result.setdefault(span.name, set()).add(str((span.attributes or {}).get("cluster.name", "")))
    return result


def nanoseconds(moment: datetime | None) -> int:
    assert moment is not None
    return int(moment.timestamp() * 1e9)


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
async def fleet(database: Database, traces: Traces) -> RolloutHarness:
    harness = RolloutHarness(database, *CLUSTERS, reporter=traces.reporter)
    await harness.register()
    return harness


async def test_the_spans_of_a_deployment_are_below_one_span_from_its_request_to_its_end(
    fleet: RolloutHarness, traces: Traces
) -> None:
    made = await fleet.create(CANARY)
    await fleet.run()
    root = traces.only("operator.deploy")
    ended = await fleet.deployment(made.id)
    assert root.parent is None
    assert (root.start_time, root.end_time) == (nanoseconds(made.created_at), nanoseconds(ended.finished_at))
    assert names_below(traces.spans, root) == {
        "operator.validate": {""},
        "cluster.connect": set(CLUSTERS),
        "helm.install": set(CLUSTERS),
        "operator.healthcheck": set(CLUSTERS),
    }
    assert root.attributes is not None
    assert root.attributes["operator.name"] == RELEASE.name
    assert root.attributes["operator.version"] == "2.0.0"
    assert root.attributes["deployment.phase"] == "Completed"
    assert root.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("caller", [CALLER, ""], ids=["with a trace", "without"])
async def test_every_log_line_of_a_rollout_names_the_trace_of_its_spans(
    fleet: RolloutHarness, traces: Traces, caller: str
) -> None:
    fleet.clusters.unhealthy = {("dev-2", NEW)}
    request = DeploymentRequest(
        operator=RELEASE.name,
        version="2.0.0",
        targets=ClusterSelector(CLUSTERS),
        strategy=StrategyName.DIRECT,
    )
    with capture_logs() as lines:
        made = await fleet.deployments.create(DEPLOYER, request, trace_parent=caller)
        await fleet.run()
    about = [line for line in lines if line.get("deploymentId") == str(made.id)]
    events = {line["event"] for line in about}
    assert {"operator failed on a cluster", "deployment changed its phase"} <= events
    exported = {f"{span.context.trace_id:032x}" for span in traces.spans if span.context is not None}
    assert len(exported) == 1
    assert {line["traceId"] for line in about} == exported


async def test_a_rollback_has_a_span_below_that_of_its_deployment(
    fleet: RolloutHarness, traces: Traces
) -> None:
    fleet.clusters.unhealthy = {("dev-2", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    ended = await fleet.deployment(made.id)
    root, back = traces.only("operator.deploy"), traces.only("operator.rollback")
    assert names_below(traces.spans, root)["operator.rollback"] == {""}
    assert set(names_below(traces.spans, back)) == {
        "cluster.connect",
        "helm.rollback",
        "operator.healthcheck",
    }
    assert names_below(traces.spans, back)["helm.rollback"] == set(CLUSTERS)
    assert root.status.status_code is StatusCode.ERROR
    assert root.end_time == back.start_time == nanoseconds(ended.rollback_started_at)
    assert back.end_time == nanoseconds(ended.finished_at)


async def test_a_rollback_of_a_completed_deployment_does_not_export_its_span_again(
    fleet: RolloutHarness, traces: Traces
) -> None:
    made = await fleet.create(DirectStrategy())
    await fleet.run()
    await fleet.deployments.rollback(ADMIN, made.id, reason="a defect")
    await fleet.run()
    assert traces.only("operator.deploy").status.status_code is StatusCode.UNSET
    assert traces.only("operator.rollback").status.status_code is StatusCode.UNSET


async def test_the_trace_of_the_client_is_continued(fleet: RolloutHarness, traces: Traces) -> None:
    request = DeploymentRequest(
        operator=RELEASE.name,
        version="2.0.0",
        targets=ClusterSelector(CLUSTERS),
        strategy=StrategyName.DIRECT,
    )
    await fleet.deployments.create(DEPLOYER, request, trace_parent=CALLER)
    await fleet.run()
    root = traces.only("operator.deploy")
    assert root.parent is not None
    assert (root.parent.trace_id, root.parent.span_id) == (0xABC, 0xDEF)
    assert {span.context.trace_id for span in traces.spans if span.context is not None} == {0xABC}


@pytest.mark.long
async def test_replicas_that_share_a_deployment_export_one_trace(
    fleet: RolloutHarness, traces: Traces
) -> None:
    other = Traces()
    fleet.reporter = other.reporter
    second = fleet.replica("manager-2", slots=1)
    await fleet.create(CANARY)
    await fleet.run(second, fleet.engine)
    spans = traces.spans + other.spans
    assert traces.spans, "each replica has done something"
    assert other.spans, "each replica has done something"
    (root,) = (span for span in spans if span.name == "operator.deploy")
    assert names_below(spans, root)["helm.install"] == set(CLUSTERS)
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 1


async def test_a_deployment_that_is_not_sampled_exports_nothing(database: Database) -> None:
    traces = Traces(TracerProvider(sampler=ParentBased(ALWAYS_OFF)))
    fleet = RolloutHarness(database, *CLUSTERS, reporter=traces.reporter)
    await fleet.register()
    await fleet.create(DirectStrategy())
    await fleet.run()
    assert traces.spans == []


async def test_a_rejected_deployment_and_an_aborted_one_end_their_spans(
    fleet: RolloutHarness, traces: Traces
) -> None:
    made = await fleet.create(CANARY)
    await fleet.deployments.abort(DEPLOYER, made.id)
    root = traces.only("operator.deploy")
    assert root.attributes is not None
    assert (root.status.status_code, root.attributes["deployment.phase"]) == (StatusCode.ERROR, "Aborted")
