"""The state of one server: the store, the registry, the clock, the admission chain and the source of UIDs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom
from typing import Any, Protocol

from kapsa.devcluster.clock import ClusterClock, HostClock
from kapsa.devcluster.embedded.codec.canonical import timestamp
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.storage.store import Collection, ObjectStore, StoreChange
from kapsa.devcluster.embedded.strategies.catalog import strategy_for
from kapsa.devcluster.embedded.strategies.generic.addresses import Addresses
from kapsa.devcluster.embedded.strategies.generic.strategy import Strategy

__all__ = ["Admission", "Backend"]


Object = dict[str, Any]
_A_SECOND = timedelta(seconds=1)


class Admission(Protocol):
    """A plugin that may change or reject a write before it is stored."""

    @property
    def resources(self) -> frozenset[tuple[str, str]] | None:
        """Groups and names of the resources that the plugin is called for; None for every resource."""

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object: ...

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None: ...

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None: ...


class Backend:
    """The state of one embedded control plane."""

    def __init__(
        self,
        *,
        clock: ClusterClock | None = None,
        store: ObjectStore | None = None,
        registry: ResourceRegistry | None = None,
        seed: int | None = None,
    ) -> None:
        self.clock: ClusterClock = clock or HostClock()
        self.store = store or ObjectStore()
        self.registry = registry or ResourceRegistry(builtin_resources())
        # A restored store must not get the UIDs again that the seed gave to its objects.
        used = self.store.restored_revision << 64
        self.random: Random = SystemRandom() if seed is None else Random(seed + used)  # noqa: S311  repeatable

        self._formatted_second, self._formatted_at, self._timestamp = -1, datetime.min.replace(tzinfo=UTC), ""
        self.admission: list[Admission] = []
        """Called in order: plugins that may reject a write before webhooks come first."""
        self._chains: dict[ResourceInfo, tuple[int, list[Admission]]] = {}
        self._strategies: dict[ResourceInfo, Strategy] = {}
        self.creates_accounts = False
        """True while a controller creates the service account `default` of each new namespace."""
        self.addresses = Addresses()
        """Cluster IPs and node ports of Services."""
        for service in self.store.collection("", "services").current():
            self.addresses.hold(service.key, decode(service))
        self.store.listeners.append(self._follow_services)

    def strategy(self, info: ResourceInfo) -> Strategy:
        """Return the strategy of a resource."""
        strategy = self._strategies.get(info)
        if strategy is None:
            strategy = self._strategies[info] = strategy_for(info, self.addresses)
        return strategy

    def admission_of(self, info: ResourceInfo) -> list[Admission]:
        """Return the plugins that are called for a resource, in order."""
        length, chain = self._chains.get(info, (-1, []))
        if length != len(self.admission):
            key = (info.group, info.resource)
            chain = [
                plugin for plugin in self.admission if plugin.resources is None or key in plugin.resources
            ]
            self._chains[info] = (len(self.admission), chain)
        return chain

    def _follow_services(self, collection: Collection, change: StoreChange) -> None:
        if collection.key != ("", "services"):
            return
        if change.type == "DELETED":
            self.addresses.release(change.object.key)
        else:
            self.addresses.hold(change.object.key, decode(change.object))

    def collection(self, info: ResourceInfo) -> Collection:
        """Return the collection that a resource is stored in."""
        return self.store.collection(
            info.group if info.storage_group is None else info.storage_group, info.resource
        )

    def now(self) -> str:
        """Return the time in the format of metav1.Time, formatted at most once per second."""
        moment = self.clock.now()
        is_stale = moment - self._formatted_at > _A_SECOND or moment < self._formatted_at
        if moment.second != self._formatted_second or is_stale:
            self._formatted_second, self._formatted_at = moment.second, moment
            self._timestamp = timestamp(moment)
        return self._timestamp

    def new_uid(self) -> str:
        """Return a random UUID, repeatable with a seed."""
        text = f"{self.random.getrandbits(128):032x}"
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
