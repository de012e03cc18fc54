"""Services that all runs of one controller share, handed to its reconciler and to the context of each run."""

from __future__ import annotations

from typing import Self

import msgspec

from kapsa.runtime.cache.cache import Cache, Scopes
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller._runtime_watches import RuntimeWatches
from kapsa.runtime.controller._subscriptions import Subscriptions
from kapsa.runtime.controller.apply._child_manifest import ChildManifests
from kapsa.runtime.controller.apply.applier import Applier
from kapsa.runtime.controller.declarations import Declared
from kapsa.runtime.controller.events import EventRecorder
from kapsa.runtime.controller.work.shard import Shard
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.telemetry.metrics import ControllerMetrics

__all__ = ["Services"]

_ALL_OBJECTS: Scopes = frozenset({("", "", False)})


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running operator that one controller works with."""

    declared: Declared
    client: Client
    """Rejects writes once this process may no longer write."""
    cache: Cache
    applier: Applier
    recorder: EventRecorder
    metrics: ControllerMetrics
    children: ChildManifests
    subscriptions: Subscriptions
    runtime_watches: RuntimeWatches
    cluster: str = ""
    """The name of the cluster; empty for an operator of one cluster."""
    shard: Shard | None = None
    """The keys that the controller works on; None for all."""

    def scopes(self, gvk: GroupVersionKind) -> Scopes:
        """Return the watches of a kind whose objects the controller reads: its own. None if it has none: then all."""
        declared = self.declared.scopes.get(gvk)
        return _ALL_OBJECTS if declared is None and gvk in self.runtime_watches else declared

    @classmethod
    def of(
        cls,
        declared: Declared,
        *,
        client: Client,
        cache: Cache,
        applier: Applier,
        recorder: EventRecorder,
        metrics: ControllerMetrics,
        cluster: str = "",
        shard: Shard | None = None,
    ) -> Self:
        """Return the services of the controller with this declaration."""
        return cls(
            declared=declared,
            client=client,
            cache=cache,
            applier=applier,
            recorder=recorder,
            metrics=metrics,
            children=ChildManifests(declared.gvk, client.discovery, (declared.kind, *declared.owned)),
            subscriptions=Subscriptions(),
            runtime_watches=RuntimeWatches(declared, cache),
            cluster=cluster,
            shard=shard,
        )
