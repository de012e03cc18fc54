"""CRDs of operators in PostgreSQL. The definitions are those of the registry; clusters are read by their inventories."""

import uuid
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, Text, cast, column, func, select, tuple_
from sqlalchemy.dialects.postgresql import JSONB, distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ClusterHealth
from kapsa.fleet.infrastructure.postgres.tables.crds import crd_approval, crd_upload
from kapsa.fleet.infrastructure.postgres.tables.registry import (
    cluster,
    cluster_inventory,
    operator,
    operator_version,
    operator_version_crd,
)
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.crds import CrdApproval, CrdListing, CrdOnCluster, CrdRevision

__all__ = ["PostgresCrds"]

_CRD = operator_version_crd
_KEY = (_CRD.c.operator_id, _CRD.c.version, _CRD.c.name)
_owner = operator.c.name


class PostgresCrds:
    """CRDs in PostgreSQL. Each method works in the caller's transaction."""

    async def insert(
        self,
        connection: AsyncConnection,
        operator_id: uuid.UUID,
        version: str,
        crd: ChartCrd,
        created_by: str,
    ) -> bool:
        """Insert a CRD that is stored separately. Return False if the version has one of the name already."""
        key = {"operator_id": operator_id, "version": version, "name": crd.name}
        query = (
            insert(_CRD)
            .values(key | {"location": crd.location, "definition": crd.definition})
            .on_conflict_do_nothing()
            .returning(_CRD.c.name)
        )
        if (await connection.execute(query)).first() is None:
            return False
        await connection.execute(insert(crd_upload).values(key | {"created_by": created_by}))
        return True

    async def count(self, connection: AsyncConnection, operator_id: uuid.UUID, version: str) -> int:
        """Return the number of CRDs of a version."""
        same = (_CRD.c.operator_id == operator_id, _CRD.c.version == version)
        query = select(func.count()).select_from(_CRD).where(*same)
        return int((await connection.execute(query)).scalar_one())

    async def page(
        self, connection: AsyncConnection, *, after: tuple[str, str], limit: int, operator: str, prefix: str
    ) -> list[CrdListing]:
        """Return CRDs in the order of their names and operators, after such a pair."""
        query = _listings().where(tuple_(_CRD.c.name, _owner) > after).limit(limit)
        if operator:
            query = query.where(_owner == operator)
        if prefix:
            query = query.where(_CRD.c.name.startswith(prefix, autoescape=True))
        return [CrdListing(**row._asdict()) for row in await connection.execute(query)]

    async def revisions(
        self, connection: AsyncConnection, name: str, *, operator: str, limit: int
    ) -> list[CrdRevision]:
        """Return the revisions of a CRD, the newest version first; those of one operator unless it is empty."""
        query = (
            _revisions()
            .where(_CRD.c.name == name)
            .order_by(_owner, operator_version.c.version_order.desc())
            .limit(limit)
        )
        if operator:
            query = query.where(_owner == operator)
        return [CrdRevision(**row._asdict()) for row in await connection.execute(query)]

    async def revision(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str, name: str
    ) -> CrdRevision | None:
        """Return the revision of a CRD in one version."""
        query = _revisions().where(tuple_(*_KEY) == (operator_id, version, name))
        row = (await connection.execute(query)).first()
        return None if row is None else CrdRevision(**row._asdict())

    async def definition(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str, name: str
    ) -> dict[str, Any] | None:
        """Return the definition of a CRD in one version."""
        query = select(_CRD.c.definition).where(
            _CRD.c.operator_id == operator_id, _CRD.c.version == version, _CRD.c.name == name
        )
        definition = (await connection.execute(query)).scalar()
        return None if definition is None else dict(definition)

    async def clusters(self, connection: AsyncConnection, name: str) -> list[CrdOnCluster]:
        """Return the clusters that have a CRD, by their last inventories, in the order of their names."""
        entries = func.jsonb_array_elements(cluster_inventory.c.content["crds"]).table_valued(
            column("value", JSONB), name="crd"
        )
        query = (
            select(
                cluster.c.id,
                cluster.c.name,
                cluster.c.environment,
                cluster.c.health,
                entries.c.value,
                cluster_inventory.c.taken_at,
            )
            .select_from(cluster)
            .join(cluster_inventory, cluster_inventory.c.cluster_id == cluster.c.id)
            .join(entries, entries.c.value["name"].astext == name)
            .order_by(cluster.c.name)
        )
        return [_on_cluster(row) for row in await connection.execute(query)]

    async def insert_approval(self, connection: AsyncConnection, approval: CrdApproval) -> bool:
        """Insert an approval. Return False if the same digest is approved already."""
        query = (
            insert(crd_approval)
            .values(msgspec.structs.asdict(approval))
            .on_conflict_do_nothing()
            .returning(crd_approval.c.digest)
        )
        return (await connection.execute(query)).first() is not None

    async def approvals(self, connection: AsyncConnection, name: str, *, operator: str) -> list[CrdApproval]:
        """Return the approvals of a CRD, newest first; those of one operator unless it is empty."""
        query = (
            select(crd_approval)
            .where(crd_approval.c.name == name)
            .order_by(crd_approval.c.approved_at.desc(), crd_approval.c.digest)
        )
        if operator:
            query = query.where(crd_approval.c.operator_id == _operator_id(operator))
        return [CrdApproval(**row._asdict()) for row in await connection.execute(query)]


def _operator_id(name: str) -> Any:
    return select(operator.c.id).where(operator.c.name == name).scalar_subquery()


def _listings() -> Select[Any]:
    """Return the query for listings: one row for each CRD of an operator, from its newest version."""
    spec = _CRD.c.definition["spec"]
    pair = (_CRD.c.name, _owner)
    return (
        select(
            _CRD.c.name,
            _owner.label("operator"),
            spec["group"].astext.label("group"),
            spec["names"]["kind"].astext.label("kind"),
            spec["scope"].astext.label("scope"),
            _CRD.c.version.label("newest_version"),
            func.count().over(partition_by=pair).label("revisions"),
        )
        .join(operator_version, _same_version())
        .join(operator, operator.c.id == _CRD.c.operator_id)
        .ext(distinct_on(*pair))
        .order_by(*pair, operator_version.c.version_order.desc())
    )


def _revisions() -> Select[Any]:
    """Return the query for revisions, without their definitions, which may be large."""
    spec = cast(_CRD.c.definition["spec"], Text)
    digest = func.encode(func.sha256(func.convert_to(spec, "UTF8")), "hex")
    upload = (crd_upload.c.operator_id, crd_upload.c.version, crd_upload.c.name)
    return (
        select(
            _CRD.c.operator_id,
            _owner.label("operator"),
            _CRD.c.version,
            _CRD.c.name,
            _CRD.c.location,
            digest.label("digest"),
            func.coalesce(crd_upload.c.created_at, operator_version.c.created_at).label("created_at"),
            func.coalesce(crd_upload.c.created_by, operator_version.c.created_by).label("created_by"),
            operator_version.c.migration_guide,
        )
        .join(operator_version, _same_version())
        .join(operator, operator.c.id == _CRD.c.operator_id)
        .outerjoin(crd_upload, tuple_(*upload) == tuple_(*_KEY))
    )


def _same_version() -> ColumnElement[bool]:
    return tuple_(operator_version.c.operator_id, operator_version.c.version) == tuple_(*_KEY[:2])


def _on_cluster(row: Any) -> CrdOnCluster:
    crd = row.value
    manager = crd.get("manager") or {}
    owner = manager.get("owner")
    return CrdOnCluster(
        row.id,
        row.name,
        ClusterEnvironment(row.environment),
        msgspec.convert(row.health, ClusterHealth, strict=False).kubernetes_version,
        tuple(crd.get("versions", ())),
        crd.get("storageVersion", ""),
        tuple(crd.get("storedVersions", ())),
        f"{manager['name']} ({owner})" if manager and owner else manager.get("name", ""),
        row.taken_at,
    )
