"""Leader election on a Lease: at most one process writes.

Two rules make it safe. Another leader's lease has expired if *we* have not observed a change for
`lease_duration` by our own clock; the times in the lease do not matter. Our own lease is valid for
`renew_deadline`, which is shorter, from the moment at which we *requested* its renewal. After that `gate`
refuses every write of this process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import AlreadyExists, ClientError, Conflict, NotFound, WriteRefused

__all__ = ["Elector", "LeaderElection"]

_log = structlog.get_logger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"
_RELEASED = 1
"""The seconds of a lease that its holder has released. One that was vacated in another way keeps its duration."""


class LeaderElection(msgspec.Struct, frozen=True, kw_only=True):
    """The settings by which the replicas of an operator elect a leader."""

    name: str
    """The name of the Lease."""
    namespace: str = ""
    """The namespace of the Lease; that of the operator by default."""
    lease_duration: float = 15.0
    """Seconds without an observed change after which other replicas may take the lease."""
    renew_deadline: float = 10.0
    """Seconds after the last renewal at which the leader stops writing."""
    retry_period: float = 2.0
    """Seconds between attempts, varied by up to a fifth."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period * 1.2 < self.renew_deadline < self.lease_duration:
            raise ValueError(
                f"leader election {self.name!r} needs retry_period * 1.2 < renew_deadline < lease_duration, got "
                f"{self.retry_period}, {self.renew_deadline}, {self.lease_duration}"
            )


class Elector:
    """A candidate for leadership."""

    def __init__(
        self,
        client: Client,
        election: LeaderElection,
        *,
        identity: str,
        rng: random.Random | None = None,
        on_change: Callable[[bool], None] = lambda leading: None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.election = election
        self._labels = dict(labels or {})
        self.identity = identity
        self._client = client
        self._clock = client.clock
        self._namespace = election.namespace or client.namespace
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, protects nothing
        self._on_change = on_change
        self._lease: dict[str, Any] | None = None
        self._observed_version = ""
        self._observed_holder = ""
        self._expires_at = float("-inf")
        self._valid_until = float("-inf")
        self._logged_leader = ""
        self.trouble = ""
        """The reason for which the lease cannot be taken until somebody acts, such as a missing right."""
        self.leading_since = float("-inf")
        """The monotonic time at which this process took the lease that it holds, or held last."""
        self.attempted = asyncio.Event()
        """Set after the first attempt to take the lease, whatever its result."""
        self._leading = False
        self._tenure = asyncio.Event()
        self._over = asyncio.Event()
        self._over.set()
        self._lost = asyncio.Event()
        self._lost.set()
        self._vacant = asyncio.Event()
        self._vacant.set()
        self._occupants = 0
        self._doubtful_until = float("-inf")
        self._unreleased = False
        self._handing_over = False
        self._task: asyncio.Task[None] | None = None

    # -- for the operator --------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """True if this process may write now."""
        return self._clock.monotonic() < self._valid_until

    def gate(self) -> float | None:
        """Return the seconds for which writes are still allowed. Raises `WriteRefused` if they are not."""
        left = self._valid_until - self._clock.monotonic()
        if left <= 0:
            raise WriteRefused(
                f"this process ({self.identity}) does not hold the lease {self._namespace}/{self.election.name}"
            )
        return left

    async def wait_until_leading(self) -> None:
        """Wait until this process leads."""
        await self._tenure.wait()

    async def wait_until_lost(self) -> None:
        """Wait until this process no longer leads, or is to hand the lease over."""
        await self._over.wait()

    async def wait_until_closed(self) -> None:
        """Wait until this process may not write any more. It may for as long as it hands the lease over."""
        await self._lost.wait()

    @property
    def handing_over(self) -> bool:
        """True while this process holds the lease only until the work under it has ended."""
        return self._handing_over and self.is_leader

    def enter(self) -> None:
        """Begin to work under the lease. A hand-over waits for the `leave` that must follow."""
        self._occupants += 1
        self._vacant.clear()

    def leave(self, *, cut_short: bool) -> None:
        """End the work under the lease. `cut_short` if some of it was cancelled: its last request may be on its way."""
        if cut_short:
            self.doubt()
        self._occupants -= 1
        if self._occupants == 0:
            self._vacant.set()

    def doubt(self) -> None:
        """Record that a write ended without an answer: it may still arrive.

        A stop within `lease_duration` then leaves the lease to expire instead of releasing it.
        """
        self._doubtful_until = self._clock.monotonic() + self.election.lease_duration

    async def hand_over(self) -> None:
        """Let the work under the lease end, then release it, and stop."""
        self._handing_over = True
        self._end_tenure()
        await self._vacant.wait()
        await self.stop()

    def observe(self, lease: dict[str, Any]) -> None:
        """Note a state of the lease that this process has read: it expires unless it changes in time."""
        version = lease["metadata"]["resourceVersion"]
        if version != self._observed_version:
            spec = lease.get("spec") or {}
            released = not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == _RELEASED
            duration = max(float(spec.get("leaseDurationSeconds") or 0), self.election.lease_duration)
            self._observed_version = version
            self._observed_holder = str(spec.get("holderIdentity") or "")
            self._expires_at = self._clock.monotonic() + (0 if released else duration)

    async def holder(self) -> str:
        """Read which process holds the lease. Empty if none does, as far as this one has observed."""
        return "" if await self._read() is None else self.last_holder

    @property
    def last_holder(self) -> str:
        """The process that held the lease when it was last read. Empty if none did, or it has expired since."""
        return "" if self._has_expired() else self._observed_holder

    def start(self) -> None:
        """Start to campaign. Idempotent."""
        if self._task is None:
            self._lease = None
            self._handing_over = self._unreleased = False
            self._task = asyncio.create_task(self._campaign(), name=f"election {self.election.name}")

    async def stop(self) -> None:
        """Stop, and release the lease, so that the next leader need not wait for it to expire.

        If a write of this process may still arrive, the lease is left to expire. A stop that was cancelled is resumed by
        the next one.
        """
        await self._end_campaign()
        doubtful = self._clock.monotonic() < self._doubtful_until
        self._unreleased = self._unreleased or (self.is_leader and not doubtful)
        self._lose("stopped")  # before the release: nothing may be written while it is on its way
        if self._unreleased:
            await self._release()
            self._unreleased = False

    async def abandon(self) -> None:
        """Stop as a crash does: the lease stays until it expires."""
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
            # First, since the lease may have expired while the event loop was blocked.
            self._check_expiry()
            if self._handing_over and not self._leading:
                return  # lost on the way out: work that has not ended yet must not be allowed to write again
            if await self._attempt():
                self._win()
            self.attempted.set()
            self._check_expiry()
            await self._pause()

    def _check_expiry(self) -> None:
        if self._leading and not self.is_leader:
            self._lose("the lease could not be renewed in time")

    async def _pause(self) -> None:
        period = self.election.retry_period * self._rng.uniform(0.8, 1.2)
        if self._leading:
            # Wake up when the lease expires, to report it at once.
            period = min(period, max(0.0, self._valid_until - self._clock.monotonic()))
        await self._clock.sleep(period)

    async def _attempt(self) -> bool:
        """Try to take or renew the lease. Return whether this process holds it."""
        requested_at = self._clock.monotonic()
        limit = self.election.renew_deadline
        if self._leading:
            limit = max(0.1, self._valid_until - requested_at)
        try:
            async with asyncio.timeout(limit):
                taken = await self._take_or_renew()
        except (ClientError, TimeoutError) as error:
            _log.warning("lease not reached", lease=self.election.name, error=str(error) or "timed out")
            self._lease = None  # its state is unknown: read it before the next attempt
            lasting = isinstance(error, ClientError) and not error.retryable
            self.trouble = str(error) if lasting else self.trouble
            return False
        except Exception as error:
            # Without the campaign this process would neither take the lease again nor report that it lost it.
            _log.exception("lease not taken or renewed", lease=self.election.name)
            self._lease = None
            self.trouble = f"{type(error).__name__}: {error}"
            return False
        if taken:
            self.trouble = ""
            self._check_expiry()  # the lease may have expired while the request was in flight
            if not self._leading and (self._handing_over or self._occupants):
                return False  # what has not ended yet must not be allowed to write again
            self._valid_until = requested_at + self.election.renew_deadline
        return taken

    async def _take_or_renew(self) -> bool:
        held = self._leading
        if await self._try():
            return True
        # A leader whose renewal was rejected reads at once whether another process holds the lease.
        return held and self._lease is None and self._leading and await self._try()

    async def _try(self) -> bool:
        lease = self._lease or await self._read()
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if lease is not None and holder != self.identity:
            if self._leading:
                self._lose("another process holds the lease" if holder else "the lease was vacated")
            self._lease = None  # read it again next time
        if not self._may_take(holder):
            self._stand_by(holder)
            return False
        return await (self._create() if lease is None else self._write(lease, spec, holder))

    def _may_take(self, holder: str) -> bool:
        """Return whether no other process can hold the lease, as far as this one has observed.

        A lease that was deleted or vacated without a release may have a holder that does not know it yet.
        """
        if self._leading:
            return True
        self.trouble = "work under the former lease has not ended" if self._occupants else ""
        return not self._occupants and (holder == self.identity or self._has_expired())

    def _stand_by(self, leader: str) -> None:
        if leader and leader != self._logged_leader:
            _log.info("standing by", lease=self.election.name, identity=self.identity, leader=leader)
        self._logged_leader = leader

    async def _read(self) -> dict[str, Any] | None:
        try:
            lease = await self._client.get(_LEASE, self.election.name, namespace=self._namespace)
        except NotFound:
            return None
        self.observe(lease)
        return lease

    def _has_expired(self) -> bool:
        return self._clock.monotonic() >= self._expires_at

    async def _create(self) -> bool:
        now = _micro_time(self._clock.now())
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.election.name,
                "namespace": self._namespace,
                "labels": self._labels,
            },
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
            metadata = lease["metadata"]
            labels = {**(metadata.get("labels") or {}), **self._labels}
            changed = {**lease, "metadata": {**metadata, "labels": labels}, "spec": mine}
            self._keep(await self._client.replace(changed, namespace=self._namespace))
        except (Conflict, NotFound):  # another replica was faster, or somebody edited or deleted the lease
            self._lease = None
            return False
        return True

    def _keep(self, lease: dict[str, Any]) -> None:
        lease["metadata"].pop("managedFields", None)
        self._lease = lease
        self.observe(lease)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self.election.retry_period):
                released = await self._write_release()
        except (ClientError, TimeoutError) as error:
            _log.warning("lease not released; other replicas wait until it expires", error=str(error))
            return
        except Exception:  # an unexpected response must not keep the rest of the operator from stopping
            _log.exception("lease not released; other replicas wait until it expires")
            return
        if released:
            _log.info("lease released", lease=self.election.name)

    async def _write_release(self) -> bool:
        """Clear the holder of the lease. Return False if this process no longer holds it."""
        while True:
            lease = self._lease or await self._read()
            if lease is None or lease["spec"].get("holderIdentity") != self.identity:
                return False
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": _RELEASED}
            spec["renewTime"] = _micro_time(self._clock.now())
            try:
                await self._client.replace({**lease, "spec": spec}, namespace=self._namespace)
            except Conflict:
                # The last renewal was cancelled after it had reached the server: read its result.
                self._lease = None
            else:
                return True

    def _win(self) -> None:
        if not self._leading:
            _log.info("leading", lease=self.election.name, identity=self.identity)
            self.leading_since = self._clock.monotonic()
            self._leading = True
            self._over.clear()
            self._lost.clear()
            self._tenure.set()
            self._on_change(True)

    def _lose(self, reason: str) -> None:
        self._valid_until = float("-inf")
        if self._leading:
            log = _log.info if self._task is None else _log.warning  # expected at shutdown
            log("no longer leading", lease=self.election.name, identity=self.identity, reason=reason)
            self._leading = False
            self._lost.set()
            self._end_tenure()
            self._on_change(False)

    def _end_tenure(self) -> None:
        self._tenure.clear()
        self._over.set()


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
