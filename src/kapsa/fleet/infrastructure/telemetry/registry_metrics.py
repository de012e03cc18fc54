"""Metrics of the registry: clusters that were registered, and CRDs that were validated."""

from prometheus_client import CollectorRegistry, Counter

__all__ = ["RegistryMetrics"]

_VERDICTS = {False: "compatible", True: "breaking"}


class RegistryMetrics:
    """The counters of one replica: `RegistryMeter` for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._clusters = Counter(
            "clusters_registered", "Clusters that were registered with this replica.", registry=registry
        )
        crds = Counter(
            "crds_validated",
            "CRDs that were compared with the version before, by verdict.",
            ("verdict",),
            registry=registry,
        )
        # Each series exists from the start: the increase from nothing to one would not be seen.
        self._crds = {breaking: crds.labels(verdict) for breaking, verdict in _VERDICTS.items()}

    def cluster_registered(self) -> None:
        """Count a registered cluster."""
        self._clusters.inc()

    def crd_validated(self, *, breaking: bool) -> None:
        """Count the comparison of a CRD with the one before it."""
        self._crds[breaking].inc()
