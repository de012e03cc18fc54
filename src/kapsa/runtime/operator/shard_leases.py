"""Sharding: several active replicas share the keys, and no key ever has two of them.

The keys are divided into a fixed number of shards. Each shard has a Lease, and its holder works on the shard's
keys, fenced exactly as a leader is: that alone makes it safe. Which replica *should* hold which Lease is only a matter
of balance. Each replica announces itself with a Lease of its own, and every replica computes the same owner of each
shard from the live announcements, by rendezvous hashing: a replica that comes or goes moves its own share and no other.
Two replicas that see different members for a while compete for a Lease, and one gets it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.controller.work.shard import Shard
from kapsa.runtime.errors import ClientError, WriteRefused
from kapsa.runtime.operator._replicas import Replicas
from kapsa.runtime.operator.election import Elector, LeaderElection
from kapsa.runtime.telemetry.health import HealthCheckResult

__all__ = ["Sharding", "Shards", "owner_of"]

_log = structlog.get_logger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"
_LABEL = "kapsa.dev/shards-of"
"""The label of the Leases of shards. That of the replicas' announcements is another."""
_COUNT = "kapsa.dev/shards"
"""The label of the Lease of a shard with the number of shards that its holder divides the keys into."""


class Sharding(msgspec.Struct, frozen=True, kw_only=True):
    """The settings by which the replicas of an operator share the keys."""

    name: str
    """The name that the Leases begin with."""
    shards: int = 16
    """The number of shards, each with a Lease: more are shared more evenly, and cost more renewals."""
    namespace: str = ""
    """The namespace of the Leases; that of the operator by default."""
    lease_duration: float = 30.0
    """Seconds without an observed change after which other replicas may take a Lease."""
    renew_deadline: float = 20.0
    """Seconds after the last renewal at which a replica stops writing."""
    retry_period: float = 5.0
    """Seconds between attempts, varied by up to a fifth."""

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= 256:
            raise ValueError(f"sharding {self.name!r} needs 1 to 256 shards, got {self.shards}")
        self.election(0)

    def election(self, index: int) -> LeaderElection:
        """Return the settings of the Lease of one shard."""
        return LeaderElection(
            name=f"{self.name}-shard-{index}",
            namespace=self.namespace,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
        )


def owner_of(shard: int, replicas: Iterable[str]) -> str:
    """Return the replica that should hold a shard: the one with the highest hash of the pair."""
    return max(replicas, key=lambda replica: (_weight(shard, replica), replica))


def _weight(shard: int, replica: str) -> bytes:
    return hashlib.blake2b(f"{shard}/{replica}".encode(), digest_size=8).digest()


class _Differing(msgspec.Struct, frozen=True):
    """The Lease of a shard of another division, as this replica observed it."""

    holder: str
    version: str
    expires_at: float


class Shards:
    """The shards of one replica: those that it holds, and those that it should hold."""

    def __init__(
        self,
        client: Client,
        sharding: Sharding,
        *,
        identity: str,
        rng: random.Random,
        on_change: Callable[[str, bool], None] = lambda name, held: None,
    ) -> None:
        self._client = client
        self._sharding = sharding
        self._identity = identity
        self._clock = client.clock
        self._rng = rng
        self._replicas = Replicas(
            client,
            sharding.name,
            shards=sharding.shards,
            namespace=sharding.namespace or client.namespace,
            identity=identity,
            duration=sharding.lease_duration,
        )
        self._holders = [
            _Holder(_elector(client, sharding, index, identity=identity, rng=rng, on_change=on_change))
            for index in range(sharding.shards)
        ]
        # Never started: it only reads the Lease of a version of this operator that elects a leader.
        self._leader = Elector(
            client,
            msgspec.structs.replace(sharding.election(0), name=sharding.name),
            identity=identity,
            rng=rng,
        )
        self._differing: dict[str, _Differing] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.replicas: frozenset[str] = frozenset()
        """The live replicas, as this one last saw them."""
        self.trouble = ""
        """The reason for which the replicas cannot be read or this one cannot announce itself."""

    @property
    def electors(self) -> Sequence[Elector]:
        """The elector of each shard."""
        return [holder.elector for holder in self._holders]

    @property
    def held(self) -> list[int]:
        """The shards that this replica may work on now."""
        return [index for index, elector in enumerate(self.electors) if elector.is_leader]

    def result(self) -> HealthCheckResult:
        """Return the state for the readiness probe. A replica without a shard is ready, too."""
        lasting = next((elector.trouble for elector in self.electors if elector.trouble), "")
        if lasting:
            return HealthCheckResult(ok=False, text=f"cannot take a lease: {lasting}")
        text = f"holds {len(self.held)} of {len(self._holders)} shards, {len(self.replicas)} replicas"
        return HealthCheckResult(ok=True, degraded=bool(self.trouble), text=self.trouble or text)

    def shard(self, index: int, cluster: str) -> Shard:
        """Return the keys of a shard in a member cluster, by its UID; empty for the operator's own cluster."""
        return Shard(index, self._sharding.shards, cluster)

    def gate(self) -> float | None:
        """Return the seconds for which a shard is still held. Raises `WriteRefused` if none is."""
        for elector in self.electors:
            if elector.is_leader:
                return elector.gate()
        raise WriteRefused(f"this process ({self._identity}) holds no shard of {self._sharding.name}")

    def start(self) -> None:
        """Announce this replica, and take the shards that it should hold."""
        self._tasks = [asyncio.create_task(self._balance(), name="shard balance")]
        self._tasks += [
            asyncio.create_task(holder.keep(), name=f"shard {index}")
            for index, holder in enumerate(self._holders)
        ]

    async def retire(self) -> None:
        """Withdraw the announcement, take no more shards, and release each as soon as the work on it has ended."""
        balance = self._tasks[:1]
        for task in balance:
            task.cancel()
        for holder in self._holders:
            holder.aim(False)
        await asyncio.gather(*balance, return_exceptions=True)
        try:
            async with asyncio.timeout(self._sharding.retry_period):
                await self._replicas.withdraw()
        except (ClientError, TimeoutError) as error:
            _log.warning("replica not withdrawn; others wait until it expires", error=str(error))

    async def stop(self) -> None:
        """Release the shards that are still held. The work on them has ended, and `retire` was called."""
        await self._cancel()
        await asyncio.gather(*(elector.stop() for elector in self.electors))

    async def abandon(self) -> None:
        """Stop as a crash does: all Leases stay until they expire."""
        await self._cancel()
        await asyncio.gather(*(elector.abandon() for elector in self.electors))

    async def _cancel(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _balance(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._sharding.renew_deadline):
                    await self._replicas.announce()
                    replicas = await self._replicas.live()
                    await self._observe()
                    obstacle = await self._obstacle()
            except (ClientError, TimeoutError) as error:
                # The shards stay where they are. Those of an unreachable replica expire by themselves.
                self.trouble = str(error) or "timed out"
                _log.warning("replicas not read", sharding=self._sharding.name, error=self.trouble)
            except Exception as error:
                # Without the balance no shard would ever be taken or handed over again.
                self.trouble = f"{type(error).__name__}: {error}"
                _log.exception("shards not balanced", sharding=self._sharding.name)
            else:
                self.trouble = obstacle
                self._assign(replicas, held_only=bool(obstacle))
            await self._clock.sleep(self._sharding.retry_period * self._rng.uniform(0.8, 1.2))

    async def _observe(self) -> None:
        """Read the Leases of all shards, so that those of a replica that crashed expire together with its announcement."""
        namespace = self._sharding.namespace or self._client.namespace
        leases = await self._client.list(
            _LEASE, namespace=namespace, label_selector={_LABEL: self._sharding.name}
        )
        electors = {elector.election.name: elector for elector in self.electors}
        for lease in leases.items:
            if (elector := electors.get(lease["metadata"]["name"])) is not None and not elector.is_leader:
                elector.observe(lease)
        self._observe_divisions(leases.items)

    def _observe_divisions(self, leases: Iterable[dict[str, Any]]) -> None:
        """Note the Leases that are held under another number of shards, each until it has not changed for its duration.

        A replica that stops withdraws its announcement at once, and works on until its runs have ended.
        """
        now, before = self._clock.monotonic(), self._differing
        self._differing = {}
        for lease in leases:
            metadata, spec = lease["metadata"], lease.get("spec") or {}
            name, version, holder = metadata["name"], metadata["resourceVersion"], spec.get("holderIdentity")
            own = str(self._sharding.shards)
            if not holder or metadata["labels"].get(_COUNT, own) == own:
                continue
            last = before.get(name)
            duration = max(float(spec.get("leaseDurationSeconds") or 0), self._sharding.lease_duration)
            same = last is not None and last.version == version
            self._differing[name] = (
                last if same and last is not None else _Differing(holder, version, now + duration)
            )

    async def _obstacle(self) -> str:
        """Return the reason for which no shard may be taken: a process that works on the same keys, divided differently."""
        now = self._clock.monotonic()
        holders = {each.holder for each in self._differing.values() if now < each.expires_at}
        if differing := holders | self._replicas.differing:
            return (
                f"takes no shard while {min(differing)} divides the keys into another number of shards: "
                "stop the replicas of one of the two versions"
            )
        leader = await self._leader.holder()
        if leader:
            return f"takes no shard while {leader} holds the Lease {self._sharding.name} of a leader election: stop it"
        return ""

    def _assign(self, replicas: frozenset[str], *, held_only: bool) -> None:
        if replicas != self.replicas:
            _log.info("replicas changed", sharding=self._sharding.name, replicas=len(replicas))
        self.replicas = replicas
        for index, holder in enumerate(self._holders):
            mine = owner_of(index, replicas) == self._identity
            holder.aim(mine and (holder.elector.is_leader or not held_only))


class _Holder:
    """One shard, taken while this replica should hold it, and handed over otherwise."""

    def __init__(self, elector: Elector) -> None:
        self.elector = elector
        self._mine = asyncio.Event()
        self._foreign = asyncio.Event()
        self._foreign.set()

    def aim(self, mine: bool) -> None:
        """Take the shard, or hand it over."""
        (self._mine if mine else self._foreign).set()
        (self._foreign if mine else self._mine).clear()

    async def keep(self) -> None:
        """Follow `aim` until cancelled."""
        while True:
            await self._mine.wait()
            self.elector.start()
            await self._foreign.wait()
            try:
                await self.elector.hand_over()
            except Exception:  # the lease expires by itself
                _log.exception("shard not handed over", lease=self.elector.election.name)


def _elector(
    client: Client,
    sharding: Sharding,
    index: int,
    *,
    identity: str,
    rng: random.Random,
    on_change: Callable[[str, bool], None],
) -> Elector:
    election = sharding.election(index)
    return Elector(
        client,
        election,
        identity=identity,
        rng=rng,
        on_change=lambda held: on_change(election.name, held),
        labels={_LABEL: sharding.name, _COUNT: str(sharding.shards)},
    )
