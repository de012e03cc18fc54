"""Releases in clusters, changed by the real helm behind the gate, and read through the API."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import msgspec
import structlog

from kapsa.adapters.errors import ExternalError, TimedOut
from kapsa.adapters.process.limited_process import FinishedProcess, ProcessLimits
from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.domain.errors import InvalidInput, UnknownObject
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRecord, ReleaseRef, latest_record
from kapsa.fleet.infrastructure.clusters.gateway import ClusterClient
from kapsa.fleet.infrastructure.helm.gate import HelmGate
from kapsa.fleet.infrastructure.helm.gate_rules import Restoration
from kapsa.fleet.infrastructure.helm.gate_session import GateSession
from kapsa.fleet.infrastructure.helm.history import read_history, secret_name
from kapsa.fleet.infrastructure.helm.metrics import HelmMetrics
from kapsa.fleet.infrastructure.helm.runner import HelmInput, failure_message, run_helm
from kapsa.fleet.infrastructure.telemetry.spans import child_span
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone, ClusterRefused
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted, HelmRefused, UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.rollout.helm_failures import shown_failure
from kapsa.runtime import Client, ClientError, Conflict, Forbidden, NotFound

__all__ = ["GatedHelm", "HelmBounds"]

log = structlog.get_logger(__name__)

_ACTOR = "system:rollouts"
_PENDING = "another operation (install/upgrade/rollback) is in progress"
_LAPSED = "the lease lapsed while Helm ran: another replica may have taken over"
_MIB = 1024 * 1024
_SPANS = {
    "upgrade": "controller.deploy",
    "rollback": "controller.rollback",
    "uninstall": "controller.uninstall",
}


class Connect(Protocol):
    """A source of clients by cluster: `ClusterClients.client`."""

    def __call__(self, cluster_id: uuid.UUID) -> AbstractAsyncContextManager[ClusterClient]: ...


class HelmBounds(msgspec.Struct, frozen=True):
    """Bounds of the runs of a manager."""

    operation: timedelta = timedelta(minutes=5)
    """Helm's own timeout, for each hook."""
    run: timedelta = timedelta(minutes=10)
    """The longest run. It is killed then, and its revision stays pending."""
    parallel: int = 5
    """Runs at a time. Each has 65 MB and half a second of CPU time. If it is several, one is kept for the way back."""
    history: int = 10
    """Revisions of a release that helm keeps."""


class HelmRun(msgspec.Struct, frozen=True):
    """One run: what it does to which release."""

    verb: str
    cluster_id: uuid.UUID
    release: ReleaseRef
    arguments: tuple[str, ...]
    files: HelmInput | None = None
    restoration: Restoration | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """The values, which no message may quote."""
        return self.files.values if self.files else {}


class GatedHelm:
    """The releases of all clusters: `HelmReleases` with the real helm.

        helm = GatedHelm(database, PostgresOperators(), registry.clients.client, audit)
        services = ClusterServices(helm, operations, RolloutSecrets(vault), preflights)
        ...
        await helm.close()

    The gate begins to listen with the first run, so that nothing has to be started. Close it after the engine has
    stopped and before the clients of clusters are closed. One object serves all clusters of a manager.
    """

    def __init__(
        self,
        transactions: Transactions,
        operators: OperatorRepository,
        connect: Connect,
        audit: AuditTrail,
        bounds: HelmBounds | None = None,
        *,
        metrics: HelmMetrics | None = None,
    ) -> None:
        self._transactions = transactions
        self._operators = operators
        self._connect = connect
        self._audit = audit
        self._bounds = bounds or HelmBounds()
        self._metrics = metrics
        self._gate = HelmGate()
        self._slots = asyncio.Semaphore(self._bounds.parallel)
        self._upgrades = asyncio.Semaphore(max(1, self._bounds.parallel - 1))

    async def close(self) -> None:
        """Stop the gate. A helm that still runs writes nothing more."""
        await self._gate.close()

    async def history(self, cluster_id: uuid.UUID, release: ReleaseRef) -> tuple[ReleaseRecord, ...]:
        """Return the revisions of a release, oldest first; none if it is not installed."""
        async with self._reach(cluster_id) as client:
            return await read_history(client, release)

    async def upgrade(self, request: UpgradeRequest, guard: LeaseGuard) -> int:
        """Install or upgrade a release to exactly the approved manifest, and return its new revision.

        Raises `HelmRefused` if the release is pending, and `HelmFailed` if Helm gave up.
        """
        files = HelmInput(await self._archive(request.chart_digest), request.values, request.manifest)
        arguments = self._upgrade_arguments(request)
        run = HelmRun("upgrade", request.cluster_id, request.release, arguments, files)
        finished = await self._run(run, guard)
        return msgspec.json.decode(finished.output, type=_Printed).version

    async def rollback(
        self,
        cluster_id: uuid.UUID,
        release: ReleaseRef,
        revision: int,
        guard: LeaseGuard,
        *,
        left: tuple[FieldConflict, ...] = (),
    ) -> int:
        """Return a release to the content of an earlier revision, pending or not. Return the new revision.

        Conflicts are forced, except for the fields that are left to their owners: a field that another manager took
        meanwhile must not keep a bad version in place.
        """
        history = f"--history-max={self._bounds.history}"
        arguments = (release.name, str(revision), history, "--force-conflicts", *self._common())
        run = HelmRun("rollback", cluster_id, release, arguments, restoration=Restoration(left))
        await self._run(run, guard)
        latest = latest_record(await self.history(cluster_id, release))
        if latest is None:
            raise HelmFailed(f"release {release} is gone after its rollback: somebody else uninstalled it")
        return latest.revision

    async def uninstall(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Remove a release with its history, and no CRD."""
        await self._run(HelmRun("uninstall", cluster_id, release, (release.name, *self._waits())), guard)

    async def remove_pending(
        self, cluster_id: uuid.UUID, release: ReleaseRef, record: ReleaseRecord, guard: LeaseGuard
    ) -> None:
        """Delete one pending record, by its UID and resource version. Raises `HelmRefused` if it has changed."""

        def allowance() -> float:
            guard.check()
            return guard.remaining

        name = secret_name(release, record.revision)
        async with self._reach(cluster_id) as client:
            await self._record("removePending", cluster_id, release, {"revision": record.revision})
            try:
                await client.derive(before_write=allowance).delete(
                    "v1/Secret",
                    name,
                    namespace=release.namespace,
                    uid=record.uid,
                    resource_version=record.resource_version,
                )
            except (Conflict, NotFound):
                message = f"revision {record.revision} of {release} has changed: it is left alone"
                raise HelmRefused(message) from None

    def _upgrade_arguments(self, request: UpgradeRequest) -> tuple[str, ...]:
        labels = ",".join(f"{key}={value}" for key, value in request.labels.items())
        force = ("--force-conflicts",) if request.on_conflict is ConflictPolicy.TAKE else ()
        return (
            request.release.name,
            *HelmInput.arguments,
            "--install",
            "--create-namespace",
            "--skip-crds",
            "--reset-values",
            f"--history-max={self._bounds.history}",
            f"--labels={labels}",
            f"--description={request.description}",
            "--output=json",
            *self._common(),
            *force,
        )

    def _common(self) -> tuple[str, ...]:
        # Not `auto`: a release of Helm 3 would be patched on the client side, where conflicts are never seen.
        return (*self._waits(), "--server-side=true")

    def _waits(self) -> tuple[str, ...]:
        return ("--wait=hookOnly", f"--timeout={self._bounds.operation.total_seconds():g}s")

    async def _archive(self, digest: str) -> bytes:
        async with self._transactions.transaction() as connection:
            content = await self._operators.archive(connection, digest)
        if content is None:
            raise HelmFailed(f"the archive {digest} is not stored: add the version again")
        return content

    async def _run(self, run: HelmRun, guard: LeaseGuard) -> FinishedProcess:
        """Run helm to its end. Raises what its end means."""
        async with self._slot(run), self._reach(run.cluster_id) as client:
            guard.check()
            credential = {"credential": client.credential_id}
            await self._record(f"{run.verb}Begin", run.cluster_id, run.release, credential)
            timed = self._metrics.timed(run.verb) if self._metrics is not None else nullcontext()
            with timed, child_span(_SPANS[run.verb]):
                return await self._run_through_gate(client, run, guard)

    @asynccontextmanager
    async def _slot(self, run: HelmRun) -> AsyncIterator[None]:
        """Wait for a slot. Upgrades leave one to rollbacks and removals, which are ahead of those that wait."""
        forward = self._upgrades if run.verb == "upgrade" else nullcontext()
        async with forward, self._slots:
            yield

    async def _run_through_gate(
        self, client: ClusterClient, run: HelmRun, guard: LeaseGuard
    ) -> FinishedProcess:
        async with self._gate.open(client.transport, guard, restoration=run.restoration) as (session, access):
            arguments = (run.verb, *run.arguments, f"--namespace={run.release.namespace}")
            limits = ProcessLimits(
                seconds=self._bounds.run.total_seconds(),
                output_bytes=64 * _MIB,
                memory_bytes=1024 * _MIB,
                file_bytes=64 * _MIB,
            )
            try:
                finished = await _while_leased(session, run_helm(arguments, access, limits, run.files))
            except ExternalError as error:
                raise _ended(error, session) from None
            finally:
                await self._record_end(run, session)
        if finished.code:
            meaning = _meaning(finished, session, run)
            raise meaning or await self._failure(client, finished, run, began=session.began)
        return finished

    async def _failure(
        self, client: Client, finished: FinishedProcess, run: HelmRun, *, began: bool
    ) -> HelmFailed:
        """Return the failure in the words of the history, which are all that another replica has."""
        latest = latest_record(await read_history(client, run.release)) if began else None
        if latest is not None and latest.status is HelmStatus.FAILED:
            return HelmFailed(shown_failure(latest.description, run.values))
        return HelmFailed(failure_message(finished, run.values))

    @asynccontextmanager
    async def _reach(self, cluster_id: uuid.UUID) -> AsyncIterator[ClusterClient]:
        """Lend the client of a cluster, and turn its failures into those of the port."""
        try:
            async with self._connect(cluster_id) as client:
                yield client
        except UnknownObject as error:
            raise ClusterGone(str(error)) from None
        except Forbidden as error:
            raise ClusterRefused(redact(printable(str(error)))[:500]) from None
        except (ClientError, InvalidInput) as error:
            raise ClusterUnreachable(redact(printable(str(error)))[:500]) from None

    async def _record_end(self, run: HelmRun, session: GateSession) -> None:
        """Record the writes of a run. The run itself was recorded before it began."""
        payload = {
            "writes": msgspec.to_builtins(session.writes),
            "writeCount": session.write_count,
            "lapsed": session.lapsed,
            "unreachable": session.unreachable,
        }
        try:
            await self._record(run.verb, run.cluster_id, run.release, payload)
        except Exception as error:  # the database is away: what the run did must not be taken for a failure
            log.warning(
                "the writes of a run could not be audited", release=str(run.release), error=str(error)
            )

    async def _record(
        self, verb: str, cluster_id: uuid.UUID, release: ReleaseRef, payload: dict[str, Any]
    ) -> None:
        entry = AuditEntry(
            actor=_ACTOR,
            action=f"helm.{verb}",
            object_kind="cluster",
            object_id=str(cluster_id),
            payload={"release": str(release), **payload},
        )
        async with self._transactions.transaction() as connection:
            await self._audit.record(connection, entry)


class _Printed(msgspec.Struct):
    version: int


async def _while_leased(session: GateSession, running: Any) -> FinishedProcess:
    """Wait for a run, and end it when the lease lapses. Raises `LeaseLost` then."""
    run = asyncio.ensure_future(running)
    lapse = asyncio.ensure_future(session.lease_lapses())
    try:
        await asyncio.wait({run, lapse}, return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            finished: FinishedProcess = run.result()
            return finished
        raise LeaseLost(_LAPSED)
    finally:
        for task in (run, lapse):
            task.cancel()
        await asyncio.gather(run, lapse, return_exceptions=True)


def _ended(error: ExternalError, session: GateSession) -> Exception:
    """Return the meaning of a run that was killed for its limits, or could not be started."""
    if session.lapsed:
        return LeaseLost(_LAPSED)
    if session.unreachable:
        return ClusterUnreachable(session.unreachable)
    if isinstance(error, TimedOut):
        return HelmFailed(f"{error}: the run was ended, and its revision is pending")
    if error.retryable:  # the machine is short of processes or files, not the version at fault
        return HelmInterrupted(f"{error}: it is tried again")
    return HelmFailed(str(error))


def _meaning(finished: FinishedProcess, session: GateSession, run: HelmRun) -> Exception | None:
    """Return what a failed run means; None if helm itself gave up."""
    if session.lapsed:
        return LeaseLost(_LAPSED)
    if session.unreachable:
        return ClusterUnreachable(session.unreachable)
    if finished.code < 0:
        return HelmInterrupted(
            f"helm {run.verb} of {run.release} was ended by signal {-finished.code} before it was done, "
            "as when memory runs out: it is tried again"
        )
    message = failure_message(finished, run.values)
    if _PENDING in message:
        return HelmRefused(message)
    # A rollback stores its revision before it asks what the cluster serves.
    before_any_change = not session.changed_objects if run.verb == "rollback" else not session.began
    if session.undiscovered and before_any_change:
        return ClusterUnreachable(f"{message}: {session.undiscovered}")
    return None
