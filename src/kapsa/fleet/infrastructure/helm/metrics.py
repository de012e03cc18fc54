"""Metrics of Helm: how long its runs take, and how they end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram

__all__ = ["HelmMetrics"]

_BUCKETS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
_VERBS = ("upgrade", "rollback", "uninstall")


class HelmMetrics:
    """The metrics of the runs of one replica."""

    def __init__(self, registry: CollectorRegistry) -> None:
        duration = Histogram(
            "helm_install_duration_seconds",
            "Seconds of a run of Helm that changes a release, by verb and result. An install is an upgrade, too.",
            ("verb", "result"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._duration = {
            (verb, result): duration.labels(verb, result)
            for verb in _VERBS
            for result in ("succeeded", "failed")
        }

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        """Record the time of a run, which failed if it raises."""
        started, result = time.monotonic(), "failed"
        try:
            yield
            result = "succeeded"
        finally:
            self._duration[verb, result].observe(time.monotonic() - started)
