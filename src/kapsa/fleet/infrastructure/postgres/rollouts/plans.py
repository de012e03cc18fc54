"""Plans and their bundles. A bundle has secret values, and comes here sealed for its own row."""

import uuid
from collections.abc import Mapping

import msgspec
import structlog
from sqlalchemy import cast, delete, func, select
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.plans import ClusterPlan, RolloutPlan
from kapsa.fleet.infrastructure.postgres.tables.rollouts import deployment_bundle, deployment_plan
from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

__all__ = ["PlanRows"]

log = structlog.get_logger()


class PlanRows:
    """The rows of plans."""

    async def save(
        self,
        connection: AsyncConnection,
        deployment_id: uuid.UUID,
        plan: RolloutPlan,
        digest: str,
        bundles: Mapping[uuid.UUID, SealedSecret],
    ) -> None:
        """Store a plan in place of the one before."""
        document = msgspec.to_builtins(plan)
        row = insert(deployment_plan).values(deployment_id=deployment_id, digest=digest, document=document)
        await connection.execute(
            row.on_conflict_do_update(
                index_elements=["deployment_id"],
                set_={"digest": row.excluded.digest, "document": row.excluded.document},
            )
        )
        await connection.execute(
            delete(deployment_bundle).where(deployment_bundle.c.deployment_id == deployment_id)
        )
        rows = [
            {
                "deployment_id": deployment_id,
                "cluster_id": cluster_id,
                "sealed": sealed,
            }
            for cluster_id, sealed in bundles.items()
        ]
        if rows:
            await connection.execute(insert(deployment_bundle), rows)

    async def plan(self, connection: AsyncConnection, deployment_id: uuid.UUID) -> RolloutPlan | None:
        """Return the plan of a deployment."""
        query = select(deployment_plan.c.document).where(deployment_plan.c.deployment_id == deployment_id)
        document = (await connection.execute(query)).scalar_one_or_none()
        return None if document is None else msgspec.convert(document, RolloutPlan)

    async def cluster_plan(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> ClusterPlan | None:
        """Return the part of a plan that is for one cluster."""
        path, cluster = "$.clusters[*] ? (@.clusterId == $id)", {"id": str(cluster_id)}
        query = select(
            func.jsonb_path_query_first(
                deployment_plan.c.document, cast(path, JSONPATH), cast(cluster, JSONB), type_=JSONB
            )
        ).where(deployment_plan.c.deployment_id == deployment_id)
        document = (await connection.execute(query)).scalar_one_or_none()
        return None if document is None else msgspec.convert(document, ClusterPlan)

    async def bundle(
        self, connection: AsyncConnection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> SealedSecret | None:
        """Return what is applied to a cluster, sealed; None if it is damaged, as if there were none."""
        table = deployment_bundle
        query = select(table.c.sealed).where(
            table.c.deployment_id == deployment_id, table.c.cluster_id == cluster_id
        )
        try:
            sealed: SealedSecret | None = (await connection.execute(query)).scalar_one_or_none()
        except VaultError as error:
            log.warning("a stored manifest is damaged", deploymentId=str(deployment_id), error=str(error))
            return None
        return sealed
