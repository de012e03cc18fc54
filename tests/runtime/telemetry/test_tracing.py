"""Spans of runs and of the requests below them, with the OpenTelemetry SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from kapsa.runtime import Context, Operator, Requeue
from kapsa.runtime.telemetry.tracing import Tracing, configure
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A process has one provider for good; a test may not take it.
    monkeypatch.setattr(
        Tracing, "find", classmethod(lambda cls, clock: cls(provider.get_tracer("kapsa"), clock))
    )
    yield exporter
    provider.shutdown()


def below(spans: InMemorySpanExporter, run: ReadableSpan) -> list[str]:
    assert run.context is not None
    finished = spans.get_finished_spans()
    return [each.name for each in finished if each.parent and each.parent.span_id == run.context.span_id]


async def test_a_run_has_a_span_and_its_requests_are_children(
    harness: Harness, spans: InMemorySpanExporter
) -> None:
    async def work(resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(resource.name))
        await harness.clock.sleep(2)
        ctx.status.ready = 1
        return None

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(work, owns=["v1/ConfigMap"])], leader_election="lock"))
    await harness.settle()
    await harness.apply(app("web"))
    await harness.settle()
    runs = [span for span in spans.get_finished_spans() if span.name == "reconcile app"]
    first = runs[0]
    assert first.attributes is not None
    assert first.attributes["k8s.resource.name"] == "web"
    assert first.attributes["k8s.namespace.name"] == "default"
    assert first.attributes["kapsa.result"] == "success"
    assert first.attributes["kapsa.reasons"] == ("App default/web Added",)
    assert below(spans, first) == ["patch configmaps", "patch apps/status"]
    assert first.start_time is not None
    assert first.end_time is not None
    assert 2e9 <= first.end_time - first.start_time < 3e9  # the operator's clock, not the machine's
    names = {span.name for span in spans.get_finished_spans()}
    assert not any("leases" in name for name in names), "a renewed lease belongs to no run"


async def test_a_failed_run_is_marked(harness: Harness, spans: InMemorySpanExporter) -> None:
    async def work(resource: App, ctx: Context[App]) -> Requeue | None:
        raise ValueError("no")

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(work)]))
    await harness.apply(app("web"))
    await harness.clock.sleep(1)
    run = next(span for span in spans.get_finished_spans() if span.name == "reconcile app")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes is not None
    assert run.attributes["kapsa.result"] == "error"


def test_an_operator_without_the_sdk_does_not_load_opentelemetry() -> None:
    program = (
        "import sys, kapsa.runtime.operator.entrypoint\n"
        "from kapsa.runtime.telemetry.tracing import Tracing, configure\n"
        "assert not configure('app', {}) and Tracing.find(None) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"},
    ],
    ids=["nothing set", "no exporter", "disabled"],
)
def test_nothing_is_exported_unless_the_standard_variables_request_it(environment: dict[str, str]) -> None:
    assert not configure("app", environment)
