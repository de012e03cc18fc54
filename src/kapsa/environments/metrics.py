"""Metrics of the environments operator for Prometheus.

The numbers of projects, environments and previews are counted from the cache at each scrape, so a restart
cannot make them wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from kapsa.environments.resources.environment import Phase
from kapsa.runtime import Cache, CustomResource

__all__ = ["BoundedCounter", "EnvironmentMetrics", "PreviewMetrics"]

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_READY_SECONDS = (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_CREATION_SECONDS = (1, 2, 5, 10, 20, 30, 60)
_PHASES = get_args(Phase)
_VALUES_KEPT = 500
OTHER = "(other)"


class BoundedCounter:
    """A counter by a label with unbounded values: the oldest values are merged into `(other)`.

    The sum over all values never decreases, and the number of values is bounded.
    """

    def __init__(self, name: str, text: str, label: str, *, keep: int = _VALUES_KEPT) -> None:
        self._counter = Counter(name, text, (label,), registry=None)
        self._counts: dict[str, int] = {}
        self._keep = keep

    def inc(self, value: str) -> None:
        """Increment the counter of one value."""
        self._counts[value] = self._counts.pop(value, 0) + 1
        self._counter.labels(value).inc()
        if len(self._counts) > self._keep:
            oldest = next(iter(self._counts))
            self._counter.labels(OTHER).inc(self._counts.pop(oldest))
            self._counter.remove(oldest)

    def collect(self) -> Iterable[Metric]:
        return self._counter.collect()


class PreviewMetrics:
    """The metrics of PreviewEnvironments."""

    def __init__(self) -> None:
        self.created = BoundedCounter(
            "preview_environments_created_total", "Total successful creates.", "branch_name"
        )
        self.failed = Counter(
            "preview_environments_failed_total", "Failures by step.", ("step",), registry=None
        )
        _from_zero(self.failed, "namespace", "networkpolicy", "deployment", "service", "ingress", "update")
        self.reconciled = BoundedCounter(
            "preview_environments_reconcile_total", "Reconciliation events per pull request.", "pr_number"
        )
        self.creation_seconds = Histogram(
            "preview_environment_creation_duration_seconds",
            "End-to-end provisioning time.",
            buckets=_CREATION_SECONDS,
            registry=None,
        )
        self.expired = Counter(
            "preview_environments_expired_total",
            "Environments deleted because their TTL expired.",
            registry=None,
        )

    def collect(self, cache: Cache) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        for each in (self.created, self.failed, self.reconciled, self.creation_seconds, self.expired):
            yield from each.collect()
        active = GaugeMetricFamily("preview_environments_active", "Environments that currently exist.")
        active.add_metric([], len(_cached(cache, PreviewEnvironment)))
        yield active


class EnvironmentMetrics:
    """All metrics of the operator besides those of the runtime. Passed to `Operator(collect=...)`."""

    def __init__(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=None)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=None)

        self.project_reconciles = counter(
            "kapsa_project_reconcile_total", "Project reconciliation attempts by outcome.", "result"
        )
        self.project_reconcile_seconds = histogram(
            "kapsa_project_reconcile_duration_seconds", "Duration of reconciling a Project."
        )
        self.builds = counter("kapsa_builds_total", "Builds by engine and outcome.", "engine", "result")
        self.git_polls = counter("kapsa_git_poll_total", "Polls of git repositories by outcome.", "result")
        self.step_seconds = histogram(
            "kapsa_environment_step_duration_seconds", "Duration of a step, by outcome.", "step", "result"
        )
        self.ready_seconds = histogram(
            "kapsa_environment_ready_duration_seconds",
            "Time from a commit being seen to its environment being ready.",
            buckets=_READY_SECONDS,
        )
        self.domain_allocations = counter(
            "kapsa_domain_allocations_total", "Requests for hosts, by outcome.", "result"
        )
        self.registry_verifications = counter(
            "kapsa_registry_verifications_total", "Checks of registries, by outcome.", "result"
        )
        _from_zero(self.project_reconciles, "success", "not_ready", "error")
        _from_zero(self.git_polls, "success")
        _from_zero(self.domain_allocations, "allocated", "refused")
        _from_zero(self.registry_verifications, "Verified")
        self.previews = PreviewMetrics()

    def collect(self, cache: Cache) -> Iterator[Metric]:
        """Yield all metrics with their current values; resources are counted in the cache."""
        for each in (
            self.project_reconciles,
            self.project_reconcile_seconds,
            self.builds,
            self.git_polls,
            self.step_seconds,
            self.ready_seconds,
            self.domain_allocations,
            self.registry_verifications,
        ):
            yield from each.collect()
        projects = GaugeMetricFamily("kapsa_projects_total", "Total number of Projects.")
        projects.add_metric([], len(_cached(cache, Project)))
        yield projects
        yield _environments(cache)
        yield from self.previews.collect(cache)


def _from_zero(counter: Counter, *values: str) -> None:
    """Export the values before the first event: Prometheus sees no increase in a counter that starts at 1."""
    for value in values:
        counter.labels(value)


def _environments(cache: Cache) -> Metric:
    family = GaugeMetricFamily(
        "kapsa_environments_total", "Total number of Environments by phase.", labels=["phase"]
    )
    counts = dict.fromkeys(_PHASES, 0)
    for stored in _cached(cache, Environment):
        counts[Environment.decode(stored.raw).status.phase] += 1
    for phase, count in counts.items():
        family.add_metric([phase], count)
    return family


def _cached(cache: Cache, kind: type[CustomResource[Any, Any]]) -> list[Any]:
    """Return the cached objects of a kind; none if no controller of this operator watches it."""
    return cache.select(kind.gvk) if cache.watches(kind.gvk) else []
