"""Deployments and their clusters in the database.

Lock order: a transaction locks the row of a deployment before the rows of its clusters, so that none waits in a circle.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import case, exists, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.errors import StateConflict, UnknownObject
from kapsa.fleet.domain.rollout.deployments import (
    RUNNING_PHASES,
    DeploymentPhase,
    RolloutEvent,
    VersionDeployment,
)
from kapsa.fleet.domain.rollout.plans import ClusterPlan, RolloutPlan
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetGoal
from kapsa.fleet.infrastructure.postgres.advisory_locks import AdvisoryLock
from kapsa.fleet.infrastructure.postgres.rollouts.claims import (
    claim_rows,
    end_lease,
    held_leases,
    next_due,
    renew_lease,
)
from kapsa.fleet.infrastructure.postgres.rollouts.installations import InstallationRows
from kapsa.fleet.infrastructure.postgres.rollouts.plans import PlanRows
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.rollouts import (
    deployment,
    deployment_cluster,
    deployment_event,
)
from kapsa.fleet.orchestrator.ports.rollouts import (
    DeploymentFilter,
    FenceLost,
    HeldLease,
    OperatorInstallation,
    RolloutClaim,
)
from kapsa.fleet.orchestrator.ports.vault import SealedSecret

__all__ = ["PostgresRollouts"]


class PostgresRollouts:
    """The rows of deployments and of their clusters."""

    def __init__(self) -> None:
        self._plans = PlanRows()
        self._installations = InstallationRows()

    async def now(self, connection: AsyncConnection) -> datetime:
        """Return the time that all replicas share."""
        moment: datetime = (await connection.execute(select(NOW))).scalar_one()
        return moment

    async def held_leases(self, connection: AsyncConnection) -> list[HeldLease]:
        """Return the leases of all replicas on rows that are due."""
        return await held_leases(connection)

    async def claim(
        self,
        connection: AsyncConnection,
        owner: str,
        lease: timedelta,
        *,
        limit: int,
        kept: int = 0,
        clusters: bool = True,
        lapsed: Collection[HeldLease] = (),
    ) -> list[RolloutClaim]:
        """Claim rows that are due and free: decisions, rollbacks, plans, and the other clusters, in this order."""
        return await claim_rows(connection, owner, lease, limit, kept=kept, clusters=clusters, lapsed=lapsed)

    async def renew(self, connection: AsyncConnection, claim: RolloutClaim, lease: timedelta) -> bool:
        """Prolong a lease. Return False if the fence is another one."""
        return await renew_lease(connection, claim, lease)

    async def hand_back(self, connection: AsyncConnection, claim: RolloutClaim) -> bool:
        """End a lease before its time. Return False if the fence is another one."""
        return await end_lease(connection, claim)

    async def next_due(self, connection: AsyncConnection) -> datetime | None:
        """Return the time at which the next row becomes due; those that are due and held are left out."""
        return await next_due(connection)

    async def insert(
        self,
        connection: AsyncConnection,
        new: VersionDeployment,
        targets: Iterable[RolloutTarget],
        secret_values: SealedSecret | None,
    ) -> None:
        """Insert a deployment that is due now.

        Raises StateConflict if another one is active for the operator on a cluster.
        """
        await connection.execute(
            insert(deployment).values(
                id=new.id,
                operator_id=new.operator_id,
                operator_name=new.operator_name,
                phase=new.phase.value,
                document=msgspec.to_builtins(new),
                secret_values=secret_values,
                created_at=new.created_at,
                next_run_at=NOW,
            )
        )
        rows = [{"active": True, **_target_row(target), **_key(target)} for target in targets]
        try:
            await connection.execute(insert(deployment_cluster), rows)
        except IntegrityError as error:
            raise _already_active(error, new) from None

    async def deployment(
        self, connection: AsyncConnection, deployment_id: uuid.UUID
    ) -> VersionDeployment | None:
        """Return a deployment."""
        query = select(deployment.c.document).where(deployment.c.id == deployment_id)
        document = (await connection.execute(query)).scalar_one_or_none()
        return None if document is None else msgspec.convert(document, VersionDeployment)

    async def lock(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, *, fence: int | None = None
    ) -> VersionDeployment:
        """Lock a deployment's row and return it."""
        query = select(deployment.c.document, deployment.c.fence).where(deployment.c.id == deployment_id)
        row = (await connection.execute(query.with_for_update())).one_or_none()
        if row is None:
            raise UnknownObject(f"no deployment has the id {deployment_id}")
        if fence is not None and row.fence != fence:
            raise FenceLost(f"deployment {deployment_id} has fence {row.fence}, and not {fence}")
        return msgspec.convert(row.document, VersionDeployment)

    async def secret_values(
        self, connection: AsyncConnection, deployment_id: uuid.UUID
    ) -> SealedSecret | None:
        """Return the secret values of a deployment, sealed."""
        query = select(deployment.c.secret_values).where(deployment.c.id == deployment_id)
        sealed: SealedSecret | None = (await connection.execute(query)).scalar_one_or_none()
        return sealed

    async def save(
        self,
        connection: AsyncConnection,
        changed: VersionDeployment,
        *,
        next_run_at: datetime | None,
        release: bool = False,
    ) -> None:
        """Write a locked deployment. Its clusters are held as long as it is active.

        Raises StateConflict if it becomes active again and another deployment has taken one of its clusters.
        """
        values: dict[str, Any] = {
            "phase": changed.phase.value,
            "document": msgspec.to_builtins(changed),
            "next_run_at": next_run_at,
        }
        if release:
            values |= {"lease_owner": "", "lease_until": None}
        await connection.execute(update(deployment).where(deployment.c.id == changed.id).values(values))
        table = deployment_cluster
        try:
            await connection.execute(
                update(table)
                .where(table.c.deployment_id == changed.id, table.c.active != changed.active)
                .values(active=changed.active)
            )
        except IntegrityError as error:
            raise _already_active(error, changed) from None

    async def targets(self, connection: AsyncConnection, deployment_id: uuid.UUID) -> list[RolloutTarget]:
        """Return the clusters of a deployment, by name."""
        table = deployment_cluster
        query = (
            select(table.c.document, table.c.goal, table.c.next_run_at)
            .where(table.c.deployment_id == deployment_id)
            .order_by(table.c.cluster_name)
        )
        return [_target(row) for row in await connection.execute(query)]

    async def look(
        self, connection: AsyncConnection, claim: RolloutClaim
    ) -> tuple[VersionDeployment, RolloutTarget, datetime]:
        """Return the deployment and the cluster of a claim, and the time.

        Raises FenceLost if the row has been claimed again or is gone.
        """
        table = deployment_cluster
        query = (
            select(
                table.c.document,
                table.c.goal,
                table.c.next_run_at,
                deployment.c.document.label("whole"),
                NOW.label("moment"),
            )
            .join(deployment, deployment.c.id == table.c.deployment_id)
            .where(
                table.c.deployment_id == claim.deployment_id,
                table.c.cluster_id == claim.cluster_id,
                table.c.fence == claim.fence,
            )
        )
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise FenceLost(f"cluster {claim.cluster_id} has been claimed again since fence {claim.fence}")
        return msgspec.convert(row.whole, VersionDeployment), _target(row), row.moment

    async def save_target(
        self,
        connection: AsyncConnection,
        claim: RolloutClaim,
        target: RolloutTarget,
        *,
        seen_goal: TargetGoal,
        release: bool,
    ) -> bool:
        """Write a claimed cluster under its fence, all but its goal.

        Raises FenceLost if the row has been claimed again. A goal that changed meanwhile makes the row due now.
        """
        table = deployment_cluster
        values = _target_row(target)
        del values["goal"]
        same_goal = table.c.goal == seen_goal.value
        values["next_run_at"] = case((same_goal, values["next_run_at"]), else_=NOW)
        if release:
            values |= {"lease_owner": "", "lease_until": None}
        result = await connection.execute(
            update(table).where(_is(target), table.c.fence == claim.fence).values(values).returning(same_goal)
        )
        same = result.scalar_one_or_none()
        if same is None:
            raise FenceLost(f"{target.cluster_name} has been claimed again since fence {claim.fence}")
        return bool(same)

    async def direct(self, connection: AsyncConnection, target: RolloutTarget) -> None:
        """Set the goal of a cluster and make it due, whatever is claimed."""
        await connection.execute(
            update(deployment_cluster).where(_is(target)).values(goal=target.goal.value, next_run_at=NOW)
        )

    async def reset(self, connection: AsyncConnection, target: RolloutTarget) -> None:
        """Write a cluster of a locked deployment, and end a claim on it: the fence moves on."""
        await connection.execute(
            update(deployment_cluster)
            .where(_is(target))
            .values(
                **_target_row(target), fence=deployment_cluster.c.fence + 1, lease_owner="", lease_until=None
            )
        )

    async def wake(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, events: Iterable[RolloutEvent]
    ) -> None:
        """Make a deployment due, and append to its history. Locks its row."""
        await connection.execute(
            update(deployment).where(deployment.c.id == deployment_id).values(next_run_at=NOW)
        )
        await self.append(connection, deployment_id, events)

    async def append(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, events: Iterable[RolloutEvent]
    ) -> None:
        """Append to the history of a locked deployment."""
        listed = list(events)
        if not listed:
            return
        statement = (
            update(deployment)
            .where(deployment.c.id == deployment_id)
            .values(last_event=deployment.c.last_event + len(listed))
            .returning(deployment.c.last_event)
        )
        last = (await connection.execute(statement)).scalar_one()
        rows = [
            {
                "deployment_id": deployment_id,
                "sequence": last - len(listed) + number,
                "kind": event.kind,
                "cluster": event.cluster,
                "actor": event.actor,
                "message": event.message,
            }
            for number, event in enumerate(listed, 1)
        ]
        await connection.execute(insert(deployment_event), rows)

    async def events(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, *, after: int, limit: int
    ) -> list[RolloutEvent]:
        """Return the history after a sequence number."""
        table = deployment_event
        query = (
            select(table)
            .where(table.c.deployment_id == deployment_id, table.c.sequence > after)
            .order_by(table.c.sequence)
            .limit(limit)
        )
        return [
            RolloutEvent(row.kind, row.message, row.cluster, row.actor, row.sequence, row.at)
            for row in await connection.execute(query)
        ]

    async def page(self, connection: AsyncConnection, chosen: DeploymentFilter) -> list[VersionDeployment]:
        """Return deployments, newest first."""
        table = deployment
        query = select(table.c.document).order_by(table.c.created_at.desc(), table.c.id.desc())
        if chosen.operator:
            query = query.where(table.c.operator_name == chosen.operator)
        if chosen.phases:
            query = query.where(table.c.phase.in_([phase.value for phase in chosen.phases]))
        if chosen.before is not None:
            query = query.where(tuple_(table.c.created_at, table.c.id) < tuple_(*chosen.before))
        rows = await connection.execute(query.limit(chosen.limit))
        return [msgspec.convert(row.document, VersionDeployment) for row in rows]

    async def running(self, connection: AsyncConnection) -> int:
        """Count the deployments at work, one asking transaction after the other."""
        await connection.execute(select(func.pg_advisory_xact_lock(*AdvisoryLock.DEPLOYMENT_SLOTS.key)))
        phases = [phase.value for phase in RUNNING_PHASES]
        query = select(func.count()).select_from(deployment).where(deployment.c.phase.in_(phases))
        return int((await connection.execute(query)).scalar_one())

    async def rolling_back(self, connection: AsyncConnection, operator_id: uuid.UUID) -> bool:
        """Return whether a deployment of the operator is being rolled back."""
        query = select(
            exists().where(
                deployment.c.operator_id == operator_id,
                deployment.c.phase == DeploymentPhase.ROLLING_BACK.value,
            )
        )
        return bool((await connection.execute(query)).scalar_one())

    async def held(self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID) -> bool:
        """Return whether an active deployment of the operator includes the cluster."""
        table = deployment_cluster
        query = select(
            exists().where(
                table.c.cluster_id == cluster_id, table.c.operator_id == operator_id, table.c.active
            )
        )
        return bool((await connection.execute(query)).scalar_one())

    async def save_plan(
        self,
        connection: AsyncConnection,
        deployment_id: uuid.UUID,
        plan: RolloutPlan,
        digest: str,
        bundles: Mapping[uuid.UUID, SealedSecret],
    ) -> None:
        """Store the plan in place of the one before, with its sealed bundles."""
        await self._plans.save(connection, deployment_id, plan, digest, bundles)

    async def plan(self, connection: AsyncConnection, deployment_id: uuid.UUID) -> RolloutPlan | None:
        """Return the plan of a deployment."""
        return await self._plans.plan(connection, deployment_id)

    async def cluster_plan(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> ClusterPlan | None:
        """Return the part of a plan that is for one cluster."""
        return await self._plans.cluster_plan(connection, deployment_id, cluster_id)

    async def bundle(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> SealedSecret | None:
        """Return what is applied to a cluster, sealed."""
        return await self._plans.bundle(connection, deployment_id, cluster_id)

    async def installation(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> OperatorInstallation | None:
        """Return the release that the fleet left on a cluster."""
        return await self._installations.get(connection, cluster_id, operator_id)

    async def record_installation(
        self, connection: AsyncConnection, installation: OperatorInstallation
    ) -> None:
        """Record the release that the fleet left on a cluster."""
        await self._installations.record(connection, installation)


def _key(target: RolloutTarget) -> dict[str, Any]:
    return {
        "deployment_id": target.deployment_id,
        "cluster_id": target.cluster_id,
        "operator_id": target.operator_id,
        "cluster_name": target.cluster_name,
    }


def _target_row(target: RolloutTarget) -> dict[str, Any]:
    return {
        "goal": target.goal.value,
        "state": target.state.value,
        "document": msgspec.to_builtins(target),
        "next_run_at": target.next_run_at,
    }


def _target(row: Any) -> RolloutTarget:
    """Return the cluster of a row. Goal and time have columns of their own, which others write."""
    target = msgspec.convert(row.document, RolloutTarget)
    return msgspec.structs.replace(target, goal=TargetGoal(row.goal), next_run_at=row.next_run_at)


def _is(target: RolloutTarget) -> Any:
    table = deployment_cluster
    return (table.c.deployment_id == target.deployment_id) & (table.c.cluster_id == target.cluster_id)


def _already_active(error: IntegrityError, new: VersionDeployment) -> Exception:
    if "deployment_cluster_active" not in str(error.orig):
        return error
    return StateConflict(
        f"another deployment of {new.operator_name} is active on one of these clusters: "
        "wait until it ends, or abort it"
    )
