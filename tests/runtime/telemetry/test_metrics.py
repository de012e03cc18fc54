"""The metrics, their names, and their labels, none of which has unbounded values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from kapsa.runtime import Backoff, Cache, Context, Operator
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


async def render(harness: Harness) -> str:
    return harness.running["operator"].metrics.render().decode()


async def test_everything_an_operator_does_is_measured(harness: Harness) -> None:
    async def work(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))
        if resource.name == "bad":
            raise RuntimeError("no")

    await harness.install(App)
    controller = Recorder(work, owns=["v1/ConfigMap"], retry_backoff=Backoff(initial=1000, max=1000))
    await harness.start(Operator(controllers=[controller], leader_election="lock"))
    await harness.apply(app("good"), app("bad"))
    await harness.clock.sleep(10)
    text = await render(harness)
    for line in (
        'controller_reconciliations_total{controller="app",result="success"} 1.0',
        'controller_reconciliations_total{controller="app",result="error"} 1.0',
        'controller_reconciliation_duration_seconds_count{controller="app"} 2.0',
        'workqueue_depth{controller="app"} 0.0',
        'workqueue_retries_total{controller="app"} 1.0',
        'workqueue_queue_duration_seconds_count{controller="app"} 2.0',
        'workqueue_work_duration_seconds_count{controller="app"} 2.0',
        'workqueue_unfinished_work_seconds{controller="app"} 0.0',
        'workqueue_longest_running_processor_seconds{controller="app"} 0.0',
        'rest_client_requests_total{code="201",verb="patch"} 2.0',
        'rest_client_request_duration_seconds_count{code="200",verb="patch"}',
        'informer_cache_objects{watch="example.com/v1/App"} 2.0',
        'informer_synced{watch="v1/ConfigMap"} 1.0',
        'leader_election_master_status{name="lock"} 1.0',
        "event_loop_lag_seconds 0.0",
    ):
        assert line in text
    assert 'informer_last_progress_seconds{watch="example.com/v1/App"}' in text
    assert "workqueue_adds_total" in text


async def test_a_running_reconcile_shows_in_the_metrics_of_the_queue(harness: Harness) -> None:
    async def slowly(resource: App, ctx: Context[App]) -> None:
        await ctx.client.clock.sleep(50)

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(slowly)]))
    await harness.apply(app("a"), app("b"))
    await harness.clock.sleep(20)
    text = await render(harness)
    assert 'workqueue_depth{controller="app"} 1.0' in text
    assert 'controller_active_reconciles{controller="app"} 1.0' in text
    longest = text.split('workqueue_longest_running_processor_seconds{controller="app"} ')[1].split("\n")[0]
    assert float(longest) == pytest.approx(20, abs=0.1)


async def test_more_resources_make_no_more_series(harness: Harness) -> None:
    await harness.install(App)

    async def work(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))
        ctx.event("Normal", "Done", resource.name)

    await harness.start(Operator(controllers=[Recorder(work, owns=["v1/ConfigMap"])]))
    await harness.apply(app("first"))
    await harness.settle()
    before = len((await render(harness)).splitlines())
    await harness.apply(*(app(f"more-{number}") for number in range(50)))
    await harness.settle()
    assert len((await render(harness)).splitlines()) == before


async def test_two_operators_in_one_process_have_separate_metrics(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder()]), name="operator")
    other = await harness.start(Operator(controllers=[Recorder()], name="other"), name="other")
    await harness.apply(app("a"))
    await harness.settle()
    counted = 'controller_reconciliations_total{controller="app",result="success"} 1.0'
    assert counted in await render(harness)
    assert counted in other.metrics.render().decode()


async def test_an_operator_can_report_metrics_from_its_cache(harness: Harness) -> None:
    def collect(cache: Cache) -> Iterator[Metric]:
        family = GaugeMetricFamily("shop_apps", "How many apps there are.")
        family.add_metric([], len(cache.select(App.gvk)))
        yield family

    await harness.install(App)
    await harness.apply(app("a"), app("b"))
    await harness.start(Operator(controllers=[Recorder()], collect=collect))
    await harness.settle()
    assert "shop_apps 2.0" in await render(harness)
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert "shop_apps 1.0" in await render(harness)


async def test_custom_metrics_are_served_alongside_those_of_the_operator(harness: Harness) -> None:
    # Not the name that the documentation uses: its examples may have run in this process.
    sold = Counter("market_items_sold_total", "Items sold.")
    # As the quick start of another framework counts: a second metric of this name would make the whole page
    # unreadable.
    twin = Counter("controller_reconciliations_total", "Mine.", ["controller"])
    try:
        sold.inc(3)
        await harness.install(App)
        await harness.start(Operator(controllers=[Recorder()]))
        page = await render(harness)
        assert "market_items_sold_total 3.0" in page
        assert "process_resident_memory_bytes" in page
        assert page.count("# TYPE controller_reconciliations_total counter") == 1
        assert "Reconciles by outcome" in page
    finally:
        REGISTRY.unregister(sold)
        REGISTRY.unregister(twin)
