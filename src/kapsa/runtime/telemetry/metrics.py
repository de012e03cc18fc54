"""Prometheus metrics: one registry for each running operator, and no label with unbounded values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.telemetry.series import (
    CounterSeries,
    CounterVector,
    HistogramSeries,
    HistogramVector,
)

__all__ = [
    "CONTENT_TYPE",
    "ClusterMetrics",
    "ControllerMetrics",
    "MeteredController",
    "MeteredInformer",
    "Metrics",
    "Result",
]

CONTENT_TYPE = CONTENT_TYPE_LATEST

Result = str
"""The outcome of a reconcile: success, requeue, conflict, error, timeout or terminal."""
RESULTS: tuple[Result, ...] = ("success", "requeue", "conflict", "error", "timeout", "terminal")

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class MeteredItem(Protocol):
    """The part of a work queue's item that the metrics read."""

    @property
    def started_at(self) -> float: ...


class MeteredQueue(Sized, Protocol):
    """The part of a work queue that the metrics read on each scrape."""

    @property
    def in_flight(self) -> Iterable[MeteredItem]: ...

    def now(self) -> float: ...


class MeteredController(Protocol):
    """The part of a controller that the metrics read on each scrape."""

    @property
    def queue(self) -> MeteredQueue: ...

    @property
    def name(self) -> str: ...

    @property
    def stale(self) -> Sized: ...


class MeteredInformer(Protocol):
    """The part of an informer that the metrics read on each scrape."""

    @property
    def scope(self) -> object: ...

    @property
    def last_progress(self) -> float: ...

    @property
    def store(self) -> Sized: ...

    @property
    def synced(self) -> MeteredFlag: ...

    @property
    def relists(self) -> int: ...

    @property
    def restarts(self) -> int: ...


class MeteredFlag(Protocol):
    """An event that is set or not."""

    def is_set(self) -> bool: ...


class ClusterMetrics:
    """The metrics of an operator's work in one cluster."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, histogram = self._counter, self._histogram
        self.reconciliations = counter(
            "controller_reconciliations_total", "Reconciles by outcome.", "controller", "result"
        )
        self.durations = histogram(
            "controller_reconciliation_duration_seconds", "Duration of a reconcile.", "controller"
        )
        self.drift = counter(
            "controller_drift_total",
            "Children restored after another manager changed them.",
            "controller",
            "kind",
        )
        self.trigger_failures = counter(
            "controller_trigger_failures_total",
            "Predicates and maps that raised, by step.",
            "controller",
            "step",
        )
        self.adds = counter("workqueue_adds_total", "Keys added to the queue.", "controller")
        self.retries = counter("workqueue_retries_total", "Keys queued again after a failure.", "controller")
        self.waits = histogram(
            "workqueue_queue_duration_seconds", "Time that a key waited before its run.", "controller"
        )
        self.works = histogram("workqueue_work_duration_seconds", "Duration of a run.", "controller")
        self.requests = counter(
            "rest_client_requests_total", "Requests by verb and HTTP status.", "verb", "code"
        )
        self.latencies = histogram(
            "rest_client_request_duration_seconds", "Time until the API server responded.", "verb", "code"
        )
        self.events = counter("event_recorder_events_total", "Events by outcome.", "outcome")
        self._calls: dict[tuple[str, int], tuple[CounterSeries, HistogramSeries]] = {}

    def _counter(self, name: str, text: str, *labels: str) -> CounterVector:
        counter = CounterVector(name, text, labels)
        self.registry.register(counter)
        return counter

    def _histogram(self, name: str, text: str, *labels: str) -> HistogramVector:
        histogram = HistogramVector(name, text, labels, bounds=_SECONDS)
        self.registry.register(histogram)
        return histogram

    def observe_call(self, call: Call, code: int, seconds: float) -> None:
        """Count a request. An observer of the client."""
        series = self._calls.get((call.verb, code))
        if series is None:
            labels = (call.verb, str(code) if code else "none")
            series = (self.requests.labels(*labels), self.latencies.labels(*labels))
            self._calls[call.verb, code] = series
        series[0].inc()
        if call.verb != "watch":
            series[1].observe(seconds)

    def controller(self, name: str) -> ControllerMetrics:
        """Return the metrics of one controller."""
        return ControllerMetrics(self, name)

    def watch_queues(self, controllers: Iterable[MeteredController]) -> None:
        """Report the state of these controllers' queues on each scrape."""
        self.registry.register(_OnScrape(lambda: _queue_families(controllers)))

    def watch_informers(
        self, informers: Callable[[], Iterable[MeteredInformer]], now: Callable[[], float]
    ) -> None:
        """Report the state of the informers on each scrape. `now` is their monotonic time."""
        self.registry.register(_OnScrape(lambda: _informer_families(informers(), now())))

    def watch(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Report these metrics, too, on each scrape."""
        self.registry.register(_OnScrape(families))


class Metrics(ClusterMetrics):
    """All metrics of one running operator: those of the process, of its own cluster, and of its member clusters."""

    def __init__(self) -> None:
        super().__init__()
        counter, histogram = self._counter, self._histogram
        self.leader = Gauge(
            "leader_election_master_status", "1 while this process leads.", ("name",), registry=self.registry
        )
        self.lag = Gauge(
            "event_loop_lag_seconds", "Delay of the last timer of the event loop.", registry=self.registry
        )
        self.blocked = counter(
            "event_loop_blocked_total", "Times that the event loop was blocked for too long."
        ).labels()
        self.webhook_calls = counter(
            "webhook_requests_total", "Webhook calls by outcome.", "webhook", "outcome"
        )
        self.webhook_times = histogram(
            "webhook_request_duration_seconds", "Time until a webhook responded.", "webhook"
        )
        self._members: dict[str, ClusterMetrics] = {}

    def observe_webhook(self, name: str, outcome: str, seconds: float) -> None:
        """Count a webhook call. An observer of the webhook server."""
        self.webhook_calls.labels(name, outcome).inc()
        self.webhook_times.labels(name).observe(seconds)

    def add_cluster(self, name: str) -> ClusterMetrics:
        """Return new metrics for a member cluster. They are reported with its name as the label `cluster`."""
        self._members[name] = metrics = ClusterMetrics()
        return metrics

    def remove_cluster(self, name: str) -> None:
        """Report the metrics of a member cluster no longer."""
        self._members.pop(name, None)

    def render(self) -> bytes:
        """Return all metrics in the text format: the operator's, then those of the process-wide registry."""
        members = {name: metrics.registry for name, metrics in self._members.items()}
        return generate_latest(_MergedRegistry(self.registry, members, REGISTRY))


class ControllerMetrics:
    """The metrics of one controller, with the labels resolved once. Also the observer of its queue."""

    def __init__(self, metrics: ClusterMetrics, name: str) -> None:
        self._results = {result: metrics.reconciliations.labels(name, result) for result in RESULTS}
        self._duration = metrics.durations.labels(name)
        self._drift = metrics.drift
        self._trigger_failures = metrics.trigger_failures
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

    def trigger_failed(self, step: str) -> None:
        self._trigger_failures.labels(self._name, step).inc()

    def added(self) -> None:
        self._adds.inc()

    def started(self, waited: float) -> None:
        self._waits.observe(waited)

    def finished(self, worked: float) -> None:
        self._works.observe(worked)

    def retried(self) -> None:
        self._retries.inc()


class _MergedRegistry(CollectorRegistry):
    """The registries of an operator as one.

    Metrics of member clusters are labelled with the cluster. Of two other metrics with the same name the first is
    reported.
    """

    def __init__(
        self, own: CollectorRegistry, members: Mapping[str, CollectorRegistry], process: CollectorRegistry
    ) -> None:
        super().__init__()
        self._own = own
        self._members = members
        self._process = process

    def collect(self) -> Iterator[Metric]:
        families = {family.name: family for family in self._own.collect()}
        for cluster, registry in self._members.items():
            for family in registry.collect():
                _add_samples(families, cluster, family)
        for family in self._process.collect():
            families.setdefault(family.name, family)
        yield from families.values()


def _add_samples(families: dict[str, Metric], cluster: str, family: Metric) -> None:
    """Add the samples of a cluster's metric to the metric of that name, with the cluster as a label."""
    merged = families.get(family.name)
    if merged is None:
        merged = families[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
    merged.samples += [
        sample._replace(labels={"cluster": cluster, **sample.labels}) for sample in family.samples
    ]


class _OnScrape:
    """A collector that computes its metrics on each scrape instead of being updated continuously."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()

    def describe(self) -> Iterable[Metric]:
        return ()


def _queue_families(controllers: Iterable[MeteredController]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("workqueue_depth", "Keys that could run now.", labels=["controller"])
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds",
        "Total time that the present runs have taken so far.",
        labels=["controller"],
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "Time that the oldest present run has taken so far.",
        labels=["controller"],
    )
    active = GaugeMetricFamily("controller_active_reconciles", "Runs at present.", labels=["controller"])
    stale = GaugeMetricFamily(
        "controller_stale_watches",
        "Watches that are too old to act on. The controller waits while there is one.",
        labels=["controller"],
    )
    for name, parts in _by_name(controllers).items():
        ages = [part.queue.now() - item.started_at for part in parts for item in part.queue.in_flight]
        labels = [name]
        depth.add_metric(labels, sum(len(part.queue) for part in parts))
        unfinished.add_metric(labels, sum(ages))
        longest.add_metric(labels, max(ages, default=0.0))
        active.add_metric(labels, len(ages))
        stale.add_metric(labels, max(len(part.stale) for part in parts))
    yield from (depth, unfinished, longest, active, stale)


def _by_name(controllers: Iterable[MeteredController]) -> dict[str, list[MeteredController]]:
    """Return the parts of each controller: one, or one for each shard."""
    parts: dict[str, list[MeteredController]] = {}
    for controller in controllers:
        parts.setdefault(controller.name, []).append(controller)
    return parts


def _informer_families(informers: Iterable[MeteredInformer], now: float) -> Iterator[Metric]:
    progress = GaugeMetricFamily(
        "informer_last_progress_seconds", "Time since the watch last delivered anything.", labels=["watch"]
    )
    objects = GaugeMetricFamily("informer_cache_objects", "Objects in the cache.", labels=["watch"])
    synced = GaugeMetricFamily("informer_synced", "1 once the first list is complete.", labels=["watch"])
    relists = GaugeMetricFamily("informer_relists", "Lists after the first one.", labels=["watch"])
    restarts = GaugeMetricFamily(
        "informer_silent_restarts", "Restarts of a watch that had gone silent.", labels=["watch"]
    )
    for informer in informers:
        labels = [str(informer.scope)]
        progress.add_metric(labels, now - informer.last_progress)
        objects.add_metric(labels, len(informer.store))
        synced.add_metric(labels, float(informer.synced.is_set()))
        relists.add_metric(labels, informer.relists)
        restarts.add_metric(labels, informer.restarts)
    yield from (progress, objects, synced, relists, restarts)
