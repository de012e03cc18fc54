"""The erasure of a deleted cluster from the history of deployments: its name, its manifests and what it showed.

A deployment stays readable: it has a pseudonym in place of the name. Claims on these rows end: a replica that holds
one has read the name, and would write it again.
"""

import re
import uuid
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.postgres.tables.registry import operator_version
from kapsa.fleet.infrastructure.postgres.tables.rollouts import (
    deployment,
    deployment_bundle,
    deployment_cluster,
    deployment_event,
    deployment_plan,
)

__all__ = ["erase_from_history", "pseudonym"]

_BEFORE, _AFTER = "(?<![a-z0-9-])", "(?![a-z0-9-])"
"""The ends of a name in a text: `dev-1` is not part of `dev-10`."""
_SHOWN = {"diff": "", "values": {}, "notices": [], "verdicts": [], "conflicts": [], "additions": []}
"""The parts of a plan that have contents of the cluster, when they are empty."""
_END_OF_CLAIM = {"lease_owner": "", "lease_until": None}


def pseudonym(cluster_id: uuid.UUID) -> str:
    """Return the name that a deleted cluster has in the history."""
    return f"deleted-{cluster_id.hex[:12]}"


async def erase_from_history(connection: AsyncConnection, cluster_id: uuid.UUID, name: str) -> None:
    """Replace the name of a cluster in all deployments, and delete its manifests."""
    erasure = _Erasure(connection, cluster_id, name)
    table = deployment_cluster
    query = select(table.c.deployment_id).where(table.c.cluster_id == cluster_id)
    # Always in the same order, and a deployment before its clusters: no two transactions wait in a circle.
    for deployment_id in (await connection.execute(query.order_by(table.c.deployment_id))).scalars().all():
        await erasure.from_deployment(deployment_id)
        await erasure.from_target(deployment_id)
        await erasure.from_plan(deployment_id)
        await erasure.from_events(deployment_id)
    await erasure.from_versions()
    await connection.execute(delete(deployment_bundle).where(deployment_bundle.c.cluster_id == cluster_id))


class _Erasure:
    """The erasure of one cluster, in the caller's transaction."""

    def __init__(self, connection: AsyncConnection, cluster_id: uuid.UUID, name: str) -> None:
        self._connection = connection
        self._id = cluster_id
        self._name = name
        self._pseudonym = pseudonym(cluster_id)
        self._pattern = f"{_BEFORE}{re.escape(name)}{_AFTER}"

    async def from_deployment(self, deployment_id: uuid.UUID) -> None:
        """Erase the cluster from the messages of a deployment, and end a claim on it."""
        query = select(deployment.c.document).where(deployment.c.id == deployment_id).with_for_update()
        document = (await self._connection.execute(query)).scalar_one()
        changes = {
            "document": self._with_names(self._renamed(document)),
            "fence": deployment.c.fence + 1,
            **_END_OF_CLAIM,
        }
        await self._connection.execute(
            update(deployment).where(deployment.c.id == deployment_id).values(changes)
        )

    async def from_target(self, deployment_id: uuid.UUID) -> None:
        """Rename the cluster in its own row, and end a claim on it."""
        table = deployment_cluster
        row = (table.c.deployment_id == deployment_id) & (table.c.cluster_id == self._id)
        query = select(table.c.document).where(row).with_for_update()
        document = self._renamed((await self._connection.execute(query)).scalar_one())
        document["progress"] = self._renamed(document["progress"])
        changes = {
            "document": document | {"clusterName": self._pseudonym},
            "cluster_name": self._pseudonym,
            "fence": table.c.fence + 1,
            **_END_OF_CLAIM,
        }
        await self._connection.execute(update(table).where(row).values(changes))

    async def from_plan(self, deployment_id: uuid.UUID) -> None:
        """Rename the cluster in the plan, and empty what the plan shows of it."""
        table = deployment_plan
        query = select(table.c.document).where(table.c.deployment_id == deployment_id)
        plan = (await self._connection.execute(query)).scalar_one_or_none()
        if plan is None:
            return
        plan["clusters"] = [
            self._planned(each) if each["clusterId"] == str(self._id) else each for each in plan["clusters"]
        ]
        plan["skipped"] = self._names(plan["skipped"])
        await self._connection.execute(
            update(table)
            .where(table.c.deployment_id == deployment_id)
            .values(document=self._with_names(plan))
        )

    async def from_events(self, deployment_id: uuid.UUID) -> None:
        """Rename the cluster in the history."""
        table = deployment_event
        same = table.c.deployment_id == deployment_id
        await self._connection.execute(
            update(table).where(same, table.c.cluster == self._name).values(cluster=self._pseudonym)
        )
        await self._connection.execute(
            update(table)
            .where(same, table.c.message.regexp_match(self._pattern))
            .values(message=table.c.message.regexp_replace(self._pattern, self._pseudonym, flags="g"))
        )

    async def from_versions(self) -> None:
        """Rename the cluster in the reasons for which versions were withdrawn."""
        reason = operator_version.c.withdrawn_reason
        await self._connection.execute(
            update(operator_version)
            .where(reason.regexp_match(self._pattern))
            .values(withdrawn_reason=reason.regexp_replace(self._pattern, self._pseudonym, flags="g"))
        )

    def _planned(self, document: dict[str, Any]) -> dict[str, Any]:
        problems = [self._renamed(each) for each in document["problems"]]
        return document | _SHOWN | {"clusterName": self._pseudonym, "problems": problems}

    def _with_names(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with the pseudonym in its stages and its strategy."""
        strategy = document["strategy"]
        if "clusterOrder" in strategy:
            strategy = strategy | {"clusterOrder": self._names(strategy["clusterOrder"])}
        stages = [stage | {"clusters": self._names(stage["clusters"])} for stage in document["stages"]]
        return document | {"strategy": strategy, "stages": stages}

    def _names(self, names: list[str]) -> list[str]:
        return [self._pseudonym if each == self._name else each for each in names]

    def _renamed(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with the pseudonym in its texts for people. Other fields may be the same word."""
        return {
            key: self._text(value) if key in ("message", "waitsFor", "stalled") else value
            for key, value in document.items()
        }

    def _text(self, value: str) -> str:
        return re.sub(self._pattern, self._pseudonym, value)
