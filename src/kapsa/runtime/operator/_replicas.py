"""The replicas of a sharded operator, each announced by a Lease of its own.

A replica is live until its Lease has not changed for `duration` by the clock of the observer; the times in the Lease
do not matter. Nothing depends on it but the balance of the shards: what makes them safe are their own Leases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from kapsa.runtime.client.client import Client

__all__ = ["Replicas"]

_LEASE = "coordination.k8s.io/v1/Lease"
_LABEL = "kapsa.dev/sharding"
_SHARDS = "kapsa.dev/shards"
_FORGOTTEN = 10
"""Durations after which the Lease of a replica that is gone is deleted."""


class _Observed(msgspec.Struct, frozen=True):
    version: str
    since: float


class Replicas:
    """The announcements of all replicas of one operator."""

    def __init__(
        self, client: Client, sharding: str, *, shards: int, namespace: str, identity: str, duration: float
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._sharding = sharding
        self._shards = str(shards)
        self.differing: frozenset[str] = frozenset()
        """The live replicas that divide the keys into another number of shards."""
        self._namespace = namespace
        self._identity = identity
        self._duration = duration
        self._name = f"{sharding}-replica-{hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()}"
        self._observed: dict[str, _Observed] = {}

    async def announce(self) -> None:
        """Announce this replica, or renew its announcement."""
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {_LABEL: self._sharding},
                "annotations": {_SHARDS: self._shards},
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": round(self._duration),
                "renewTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        await self._client.apply(lease, force=True, namespace=self._namespace)

    async def withdraw(self) -> None:
        """Delete the announcement of this replica."""
        await self._client.delete(_LEASE, self._name, namespace=self._namespace, missing_ok=True)

    async def live(self) -> frozenset[str]:
        """Return the identities of the live replicas, this one included. Delete what replicas left behind."""
        leases = (
            await self._client.list(
                _LEASE, namespace=self._namespace, label_selector={_LABEL: self._sharding}
            )
        ).items
        self._observe(leases)
        now = self._clock.monotonic()
        replicas = {self._identity}
        differing: set[str] = set()
        for lease in leases:
            name = lease["metadata"]["name"]
            age = now - self._observed[name].since
            if age < self._duration:
                replica = lease.get("spec", {}).get("holderIdentity") or name
                same = (lease["metadata"].get("annotations") or {}).get(_SHARDS) == self._shards
                (replicas if same else differing).add(replica)
            elif age > self._duration * _FORGOTTEN and name != self._name:
                await self._client.delete(_LEASE, name, namespace=self._namespace, missing_ok=True)
        self.differing = frozenset(differing)
        return frozenset(replicas)

    def _observe(self, leases: Sequence[dict[str, Any]]) -> None:
        now, last = self._clock.monotonic(), self._observed
        self._observed = {}
        for lease in leases:
            name, version = lease["metadata"]["name"], lease["metadata"]["resourceVersion"]
            before = last.get(name)
            same = before is not None and before.version == version
            self._observed[name] = before if same and before is not None else _Observed(version, now)
