"""Metrics: what an operator tells Prometheus. One registry for each running operator, and no label without bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kapsa.runtime.client.dispatch import Call

if TYPE_CHECKING:
    from kapsa.runtime.cache.informer import Informer
    from kapsa.runtime.controller.workqueue import WorkQueue

__all__ = ["CONTENT_TYPE", "ControllerMetrics", "Metrics", "Result"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

Result = str
"""success, requeue, conflict, error, timeout or terminal."""
RESULTS: tuple[Result, ...] = ("success", "requeue", "conflict", "error", "timeout", "terminal")

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Watched(Protocol):
    """What the metrics read of a controller when they are asked for."""

    @property
    def queue(self) -> WorkQueue[Any]: ...
    @property
    def name(self) -> str: ...


class Metrics:
    """All metrics of one running operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=_SECONDS, registry=self.registry)

        self.reconciliations = counter(
            "controller_reconciliations_total", "Reconciles by outcome.", "controller", "result"
        )
        self.durations = histogram(
            "controller_reconciliation_duration_seconds", "How long a reconcile took.", "controller"
        )
        self.drift = counter(
            "controller_drift_total", "Children put back after somebody changed them.", "controller", "kind"
        )
        self.adds = counter("workqueue_adds_total", "Keys added to the queue.", "controller")
        self.retries = counter("workqueue_retries_total", "Keys queued again after a failure.", "controller")
        self.waits = histogram(
            "workqueue_queue_duration_seconds", "How long a key waited before its run.", "controller"
        )
        self.works = histogram("workqueue_work_duration_seconds", "How long a run took.", "controller")
        self.requests = counter(
            "rest_client_requests_total", "Requests by verb and HTTP status.", "verb", "code"
        )
        self.latencies = histogram(
            "rest_client_request_duration_seconds", "How long the API server took to answer.", "verb", "code"
        )
        self.events = counter("event_recorder_events_total", "Events by what became of them.", "outcome")
        self.leader = Gauge(
            "leader_election_master_status", "1 while this process leads.", ("name",), registry=self.registry
        )
        self.lag = Gauge(
            "event_loop_lag_seconds", "How late the event loop ran its last timer.", registry=self.registry
        )
        self.blocked = counter(
            "event_loop_blocked_total", "How often the event loop stood still for too long."
        )
        self.webhook_calls = counter(
            "webhook_requests_total", "Calls of webhooks by what came of them.", "webhook", "outcome"
        )
        self.webhook_times = histogram(
            "webhook_request_duration_seconds", "How long a webhook took to answer.", "webhook"
        )
        self._calls: dict[tuple[str, int], tuple[Any, Any]] = {}

    def observe_call(self, call: Call, code: int, seconds: float) -> None:
        """A client's observer."""
        known = self._calls.get((call.verb, code))
        if known is None:
            labels = (call.verb, str(code) if code else "none")
            known = (self.requests.labels(*labels), self.latencies.labels(*labels))
            self._calls[call.verb, code] = known
        known[0].inc()
        if call.verb != "watch":
            known[1].observe(seconds)

    def observe_webhook(self, name: str, outcome: str, seconds: float) -> None:
        """A webhook server's observer."""
        self.webhook_calls.labels(name, outcome).inc()
        self.webhook_times.labels(name).observe(seconds)

    def controller(self, name: str) -> ControllerMetrics:
        return ControllerMetrics(self, name)

    def watch_queues(self, controllers: Iterable[Watched]) -> None:
        """Have the state of these queues told whenever somebody asks."""
        self.registry.register(_OnRequest(lambda: _queue_families(controllers)))

    def watch_informers(self, informers: Callable[[], Iterable[Informer]], now: Callable[[], float]) -> None:
        """Have the state of the informers told whenever somebody asks. `now` is their monotonic time."""
        self.registry.register(_OnRequest(lambda: _informer_families(informers(), now())))

    def watch(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Have these told, too, whenever somebody asks."""
        self.registry.register(_OnRequest(families))

    def render(self) -> bytes:
        """All metrics in Prometheus' text format: ours, then what else this process tells prometheus_client."""
        return generate_latest(_Together(self.registry, REGISTRY))


class ControllerMetrics:
    """One controller's metrics, with the labels looked up once. Also its queue's observer."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._results = {result: metrics.reconciliations.labels(name, result) for result in RESULTS}
        self._duration = metrics.durations.labels(name)
        self._drift = metrics.drift
        self._name = name
        self._adds = metrics.adds.labels(name)
        self._retries = metrics.retries.labels(name)
        self._waits = metrics.waits.labels(name)
        self._works = metrics.works.labels(name)

    def reconciled(self, result: Result, seconds: float) -> None:
        self._results[result].inc()
        self._duration.observe(seconds)

    def drifted(self, kind: str) -> None:
        self._drift.labels(self._name, kind).inc()

    def added(self) -> None:
        self._adds.inc()

    def started(self, waited: float) -> None:
        self._waits.observe(waited)

    def finished(self, worked: float) -> None:
        self._works.observe(worked)

    def retried(self) -> None:
        self._retries.inc()


class _Together(CollectorRegistry):
    """Several registries told as one. Of two metrics with one name the first is told."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        super().__init__()
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        told: set[str] = set()
        for registry in self._registries:
            for family in registry.collect():
                if family.name not in told:
                    told.add(family.name)
                    yield family


class _OnRequest:
    """A collector that looks when it is asked, instead of being told all the time."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()

    def describe(self) -> Iterable[Metric]:
        return ()


def _queue_families(controllers: Iterable[Watched]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("workqueue_depth", "Keys that could run now.", labels=["controller"])
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds",
        "How long all present runs have taken together.",
        labels=["controller"],
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "How long the oldest present run takes.",
        labels=["controller"],
    )
    active = GaugeMetricFamily("controller_active_reconciles", "Runs at present.", labels=["controller"])
    for controller in controllers:
        queue = controller.queue
        now = queue.now()
        ages = [now - item.started_at for item in queue.in_flight]
        labels = [controller.name]
        depth.add_metric(labels, len(queue))
        unfinished.add_metric(labels, sum(ages))
        longest.add_metric(labels, max(ages, default=0.0))
        active.add_metric(labels, len(ages))
    yield from (depth, unfinished, longest, active)


def _informer_families(informers: Iterable[Informer], now: float) -> Iterator[Metric]:
    progress = GaugeMetricFamily(
        "informer_last_progress_seconds", "How long ago the watch last told anything.", labels=["watch"]
    )
    objects = GaugeMetricFamily("informer_cache_objects", "Objects in the cache.", labels=["watch"])
    synced = GaugeMetricFamily("informer_synced", "1 once the first list is complete.", labels=["watch"])
    relists = GaugeMetricFamily(
        "informer_relists", "How often everything was listed again.", labels=["watch"]
    )
    restarts = GaugeMetricFamily(
        "informer_silent_restarts", "How often a silent watch was restarted.", labels=["watch"]
    )
    for informer in informers:
        labels = [str(informer.scope)]
        progress.add_metric(labels, now - informer.last_progress)
        objects.add_metric(labels, len(informer.store))
        synced.add_metric(labels, float(informer.synced.is_set()))
        relists.add_metric(labels, informer.relists)
        restarts.add_metric(labels, informer.restarts)
    yield from (progress, objects, synced, relists, restarts)
