"""The erasure of a deleted cluster from the history of deployments: its name, its manifests and what it showed.

A deployment stays readable: it has a pseudonym in place of the name. Claims on these rows end: a replica that holds
one has read the name, and would write it again.

Deployments to other clusters may name it too: a version is withdrawn because it failed there, and that reason stops
them. Those that an admin has forced past it repeat the reason, which must stay that of the version.
"""

import re
import uuid
from typing import Any

from sqlalchemy import Column, ColumnElement, and_, delete, exists, or_, select, update
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
_TEXTS = ("message", "waitsFor", "stalled", "forcedWithdrawal")
"""The fields with texts for people, in deployments, their clusters and the progress of these."""
_END_OF_CLAIM = {"lease_owner": "", "lease_until": None}


def pseudonym(cluster_id: uuid.UUID) -> str:
    """Return the name that a deleted cluster has in the history."""
    return f"deleted-{cluster_id.hex[:12]}"


async def erase_from_history(connection: AsyncConnection, cluster_id: uuid.UUID, name: str) -> None:
    """Replace the name of a cluster in all deployments, and delete its manifests."""
    erasure = _Erasure(connection, cluster_id, name)
    # Always in the same order, and a deployment before its clusters: no two transactions wait in a circle.
    for deployment_id in await erasure.deployments():
        await erasure.from_deployment(deployment_id)
        await erasure.from_targets(deployment_id)
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

    async def deployments(self) -> list[uuid.UUID]:
        """Return the deployments to the cluster, and those of the same operators that name it."""
        target, event = deployment_cluster, deployment_event
        here = target.c.cluster_id == self._id
        named = or_(
            self._has_name(deployment.c.document),
            exists().where(target.c.deployment_id == deployment.c.id, self._has_name(target.c.document)),
            exists().where(
                event.c.deployment_id == deployment.c.id, event.c.message.regexp_match(self._pattern)
            ),
        )
        operators = select(target.c.operator_id).where(here)
        query = select(deployment.c.id).where(
            or_(
                deployment.c.id.in_(select(target.c.deployment_id).where(here)),
                and_(deployment.c.operator_id.in_(operators), named),
            )
        )
        return list((await self._connection.execute(query.order_by(deployment.c.id))).scalars())

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

    async def from_targets(self, deployment_id: uuid.UUID) -> None:
        """Erase the cluster from its own row and from those that name it, and end claims on them."""
        table = deployment_cluster
        own = table.c.cluster_id == self._id
        query = (
            select(table.c.cluster_id, table.c.document)
            .where(table.c.deployment_id == deployment_id, or_(own, self._has_name(table.c.document)))
            .order_by(table.c.cluster_id)
            .with_for_update()
        )
        for row in (await self._connection.execute(query)).all():
            document = self._renamed(row.document)
            document["progress"] = self._renamed(document["progress"])
            changes: dict[str, Any] = {"fence": table.c.fence + 1, **_END_OF_CLAIM}
            if row.cluster_id == self._id:
                document["clusterName"] = changes["cluster_name"] = self._pseudonym
            same = (table.c.deployment_id == deployment_id, table.c.cluster_id == row.cluster_id)
            await self._connection.execute(update(table).where(*same).values(document=document, **changes))

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
        return {key: self._text(value) if key in _TEXTS else value for key, value in document.items()}

    def _has_name(self, document: Column[Any]) -> ColumnElement[bool]:
        """Return the condition that a text of a document has the name."""
        return or_(*(document[key].astext.regexp_match(self._pattern) for key in _TEXTS))

    def _text(self, value: str) -> str:
        return re.sub(self._pattern, self._pseudonym, value)
