"""Leader election on a Lease: at most one process writes.

The rules that make it safe: whether another leader's lease has run out is judged only from when *we* last saw it
change, by our own clock, never from the times it carries; our own lease is good from when we *asked* for its renewal,
for `renew_deadline`, which is shorter than `lease_duration`. Past that no write leaves the process: `gate` refuses it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import AlreadyExists, ClientError, Conflict, NotFound, WriteRefused

__all__ = ["Elector", "LeaderElection"]

_log = structlog.get_logger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"


class LeaderElection(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator's replicas agree on who works."""

    name: str
    """The Lease's name."""
    namespace: str = ""
    """The Lease's namespace; the operator's own unless set."""
    lease_duration: float = 15.0
    """Seconds for which others leave a lease alone that they have not seen change."""
    renew_deadline: float = 10.0
    """Seconds after the last renewal at which the leader stops writing."""
    retry_period: float = 2.0
    """Seconds between attempts, give or take a fifth."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period * 1.2 < self.renew_deadline < self.lease_duration:
            raise ValueError(
                f"leader election {self.name!r} needs retry_period * 1.2 < renew_deadline < lease_duration, not "
                f"{self.retry_period}, {self.renew_deadline}, {self.lease_duration}"
            )


class Elector:
    """One candidate."""

    def __init__(
        self,
        client: Client,
        election: LeaderElection,
        *,
        identity: str,
        rng: random.Random | None = None,
        on_change: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self.election = election
        self.identity = identity
        self._client = client
        self._clock = client.clock
        self._namespace = election.namespace or client.namespace
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._on_change = on_change
        self._lease: dict[str, Any] | None = None
        self._seen_version = ""
        self._seen_at = 0.0
        self._good_until = float("-inf")
        self._told_of = ""
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._task: asyncio.Task[None] | None = None

    # -- for the operator --------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now."""
        return self._clock.monotonic() < self._good_until

    def gate(self) -> float | None:
        """The write gate: the seconds for which writing is still allowed. Raises WriteRefused when it is not."""
        left = self._good_until - self._clock.monotonic()
        if left <= 0:
            raise WriteRefused(
                f"this process ({self.identity}) does not hold the lease {self._namespace}/{self.election.name}"
            )
        return left

    async def wait_until_leading(self) -> None:
        await self._leading.wait()

    async def wait_until_lost(self) -> None:
        await self._lost.wait()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._campaign(), name=f"election {self.election.name}")

    async def stop(self) -> None:
        """Stop, and release the lease so that the next one need not wait for it to run out."""
        await self._end_campaign()
        if self.is_leader:
            await self._release()
        self._lose("stopped")

    async def abandon(self) -> None:
        """Stop as a crash does: the lease stays as it is, until it runs out."""
        await self._end_campaign()
        self._lose("abandoned")

    async def _end_campaign(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- the campaign ------------------------------------------------------------------------------------------

    async def _campaign(self) -> None:
        while True:
            # First, since a loop that was blocked may find its lease gone before it could try anything.
            self._notice_loss()
            if await self._attempt():
                self._win()
            self._notice_loss()
            await self._pause()

    def _notice_loss(self) -> None:
        if self._leading.is_set() and not self.is_leader:
            self._lose("the lease could not be renewed in time")

    async def _pause(self) -> None:
        period = self.election.retry_period * self._rng.uniform(0.8, 1.2)
        if self._leading.is_set():
            # Wake up when the lease runs out, to say so at once.
            period = min(period, max(0.0, self._good_until - self._clock.monotonic()))
        await self._clock.sleep(period)

    async def _attempt(self) -> bool:
        """Try to take or renew the lease. A failure is an answer too: others go on from what is seen."""
        asked_at = self._clock.monotonic()
        limit = self.election.renew_deadline
        if self._leading.is_set():
            limit = max(0.1, self._good_until - asked_at)
        try:
            async with asyncio.timeout(limit):
                taken = await self._take_or_renew()
        except (ClientError, TimeoutError) as error:
            _log.warning(
                "lease not reached", lease=self.election.name, error=str(error) or "no answer in time"
            )
            self._lease = None  # its state is unknown now: read it before the next attempt
            return False
        if taken:
            self._notice_loss()  # a write may have been refused while the answer was under way
            self._good_until = asked_at + self.election.renew_deadline
        return taken

    async def _take_or_renew(self) -> bool:
        lease = self._lease or await self._read()
        if lease is None:
            return await self._create()
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity) and not self._has_run_out(lease):
            self._lease = None  # somebody else's: look again next time
            self._stand_by(holder)
            return False
        return await self._write(lease, spec, holder)

    def _stand_by(self, leader: str) -> None:
        if leader != self._told_of:
            _log.info("standing by", lease=self.election.name, identity=self.identity, leader=leader)
        self._told_of = leader

    async def _read(self) -> dict[str, Any] | None:
        try:
            lease = await self._client.get(_LEASE, self.election.name, namespace=self._namespace)
        except NotFound:
            return None
        self._see(lease)
        return lease

    def _see(self, lease: dict[str, Any]) -> None:
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen_version:
            self._seen_version = version
            self._seen_at = self._clock.monotonic()

    def _has_run_out(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec") or {}
        duration = max(float(spec.get("leaseDurationSeconds") or 0), self.election.lease_duration)
        return self._clock.monotonic() - self._seen_at >= duration

    async def _create(self) -> bool:
        now = _micro_time(self._clock.now())
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.election.name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": round(self.election.lease_duration),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
        try:
            self._keep(await self._client.create(body, namespace=self._namespace))
        except AlreadyExists:
            return False
        return True

    async def _write(self, lease: dict[str, Any], spec: dict[str, Any], holder: str) -> bool:
        now = _micro_time(self._clock.now())
        mine = {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self.election.lease_duration),
            "renewTime": now,
        }
        if holder != self.identity:
            mine["acquireTime"] = now
            mine["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        try:
            self._keep(await self._client.replace({**lease, "spec": mine}, namespace=self._namespace))
        except Conflict:  # somebody was faster
            self._lease = None
            return False
        return True

    def _keep(self, lease: dict[str, Any]) -> None:
        lease["metadata"].pop("managedFields", None)
        self._lease = lease
        self._see(lease)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self.election.retry_period):
                released = await self._hand_back()
        except (ClientError, TimeoutError) as error:
            _log.warning("lease not released; others wait until it runs out", error=str(error))
            return
        if released:
            _log.info("lease released", lease=self.election.name)

    async def _hand_back(self) -> bool:
        """Write the lease without a holder. False if it is not ours any more."""
        while True:
            lease = self._lease or await self._read()
            if lease is None or lease["spec"].get("holderIdentity") != self.identity:
                return False
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            spec["renewTime"] = _micro_time(self._clock.now())
            try:
                await self._client.replace({**lease, "spec": spec}, namespace=self._namespace)
            except Conflict:
                # The last renewal was cut off after it had reached the server: read what it made of it.
                self._lease = None
            else:
                return True

    def _win(self) -> None:
        if not self._leading.is_set():
            _log.info("leading", lease=self.election.name, identity=self.identity)
            self._lost.clear()
            self._leading.set()
            self._on_change(True)

    def _lose(self, why: str) -> None:
        self._good_until = float("-inf")
        if self._leading.is_set():
            tell = _log.info if self._task is None else _log.warning  # at the end of a process it is no news
            tell("no longer leading", lease=self.election.name, identity=self.identity, why=why)
            self._leading.clear()
            self._lost.set()
            self._on_change(False)


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
