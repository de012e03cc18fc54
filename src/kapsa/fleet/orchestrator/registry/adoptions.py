"""Adoption: an operator's release that was installed before the manager came is taken over without a change.

The chart of the release must be a registered version and render to the release's own manifest under the release's own
values. Those values are kept, sealed, as the cluster's layer, so that the next deployment changes the version alone.
"""

import uuid
from typing import Any

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.charts import Charts
from kapsa.fleet.orchestrator.ports.clusters import (
    Adoption,
    ClusterGateway,
    ClusterRepository,
    ClusterUnreachable,
    ReleaseContent,
)
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import KeyVault
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials

__all__ = ["AdoptRelease", "AdoptionPlan", "Adoptions"]

_PURPOSE, _TABLE = "adopted-values", "cluster_operator"


class AdoptRelease(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to adopt the release of an operator. It has the operator's name, in the operator's namespace."""

    operator: str
    dry_run: bool = False
    """Return the plan, and adopt nothing."""


class AdoptionPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The plan of an adoption. It has no changes, or the adoption is refused."""

    cluster: str
    operator: str
    namespace: str
    release: str
    revision: int
    version: str
    """The registered version that the release was installed from."""
    chart_digest: str
    differences: tuple[str, ...]
    """Objects that the registered chart renders otherwise than the release has them."""
    notices: tuple[str, ...] = ()
    adopted: bool = False


class Adoptions:
    """Releases that were there before the manager."""

    def __init__(
        self,
        transactions: Transactions,
        clusters: ClusterRepository,
        operators: OperatorRepository,
        gateway: ClusterGateway,
        credentials: ClusterCredentials,
        charts: Charts,
        vault: KeyVault,
        audit: AuditTrail,
    ) -> None:
        self._transactions = transactions
        self._clusters = clusters
        self._operators = operators
        self._gateway = gateway
        self._credentials = credentials
        self._charts = charts
        self._vault = vault
        self._audit = audit

    async def adopt(
        self, principal: Principal, cluster: ManagedCluster, request: AdoptRelease
    ) -> AdoptionPlan:
        """Plan the adoption of an operator's release, and adopt it unless the request is a dry run.

        Raises StateConflict if another program manages the release, which it names, if the release is not deployed
        from a registered version, or if the version renders to something else.
        """
        async with self._transactions.transaction() as connection:
            operator = await self._operators.get(connection, request.operator)
        if operator is None:
            message = f"there is no operator {request.operator[:80]!r}"
            raise InvalidInput(message, InvalidField("/operator", message))
        content, api_versions = await self._release(cluster, operator)
        version, archive = await self._version(operator, content)
        differences = await self._charts.compare(
            archive,
            content.manifest,
            release=operator.name,
            namespace=operator.namespace,
            values=content.values,
            kubernetes_version=cluster.health.kubernetes_version,
            api_versions=api_versions,
        )
        plan = _plan(cluster, operator, content, version, differences)
        if request.dry_run:
            return plan
        if differences and version.facts.deterministic:
            raise StateConflict(
                f"the release {operator.namespace}/{operator.name} is not what version {version.version} renders to: "
                f"{'; '.join(differences[:5])}"
            )
        await self._store(principal, cluster, operator, content, version)
        return msgspec.structs.replace(plan, adopted=True)

    async def stored(
        self, connection: Connection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> Adoption | None:
        """Return the adoption of an operator on a cluster, its values sealed."""
        return await self._clusters.adoption(connection, cluster_id, operator_id)

    async def open_values(self, adoption: Adoption | None) -> dict[str, Any]:
        """Return the values of the cluster's layer: those that an adopted release was installed with.

        Called with no transaction open, since the vault may be slow.
        """
        if adoption is None:
            return {}
        row = _row(adoption.cluster_id, adoption.operator_id)
        content = await self._vault.open(adoption.values, _PURPOSE, _TABLE, row, adoption.values_version)
        return msgspec.json.decode(content, type=dict[str, Any])

    async def _release(
        self, cluster: ManagedCluster, operator: ManagedOperator
    ) -> tuple[ReleaseContent, tuple[str, ...]]:
        """Return the release, and the API versions that its chart has seen."""
        what = f"{operator.namespace}/{operator.name}"
        try:
            async with self._gateway.connect(await self._credentials.access(cluster)) as session:
                content = await session.release(operator.namespace, operator.name)
                api_versions = await session.api_versions()
        except ClusterUnreachable as error:
            raise StateConflict(f"cluster {cluster.name} cannot be read: {error}") from None
        if content is None:
            raise UnknownObject(f"cluster {cluster.name} has no Helm release {what}")
        if content.managers:
            names = ", ".join(str(each) for each in content.managers[:3])
            raise StateConflict(
                f"the release {what} is managed by {names}, which would undo what this manager does: "
                "remove it there first, without deleting the release"
            )
        if content.release.status != "deployed":
            raise StateConflict(
                f"revision {content.release.revision} of the release {what} is {content.release.status}, not deployed"
            )
        return content, api_versions

    async def _version(
        self, operator: ManagedOperator, content: ReleaseContent
    ) -> tuple[OperatorVersion, bytes]:
        installed = content.release
        async with self._transactions.transaction() as connection:
            version = await self._operators.version(connection, operator.id, installed.chart_version)
            archive = await self._operators.archive(connection, version.chart_digest) if version else None
        if version is None or archive is None:
            raise StateConflict(
                f"the release is of chart {installed.chart} {installed.chart_version}, which is not registered as a "
                f"version of {operator.name}: add the version first"
            )
        return version, archive

    async def _store(
        self,
        principal: Principal,
        cluster: ManagedCluster,
        operator: ManagedOperator,
        content: ReleaseContent,
        version: OperatorVersion,
    ) -> None:
        row = _row(cluster.id, operator.id)
        async with self._transactions.transaction() as connection:
            before = await self._clusters.adoption(connection, cluster.id, operator.id)
        number = before.values_version + 1 if before is not None else 1
        sealed = await self._vault.seal(_PURPOSE, _TABLE, row, number, msgspec.json.encode(content.values))
        adoption = Adoption(
            cluster_id=cluster.id,
            operator_id=operator.id,
            release=operator.name,
            namespace=operator.namespace,
            revision=content.release.revision,
            version=version.version,
            adopted_by=principal.subject,
            values_version=number,
            values=sealed,
        )
        async with self._transactions.transaction() as connection:
            await self._clusters.put_adoption(connection, adoption)
            entry = AuditEntry(
                actor=principal.subject,
                action="cluster.adopt",
                object_kind="cluster",
                object_id=str(cluster.id),
                payload={"name": cluster.name, "operator": operator.name, "version": version.version},
            )
            await self._audit.record(connection, entry)


def _plan(
    cluster: ManagedCluster,
    operator: ManagedOperator,
    content: ReleaseContent,
    version: OperatorVersion,
    differences: tuple[str, ...],
) -> AdoptionPlan:
    notices: tuple[str, ...] = ()
    if differences and not version.facts.deterministic:
        notices = (
            "The chart renders to something else each time, so its differences do not stop the adoption.",
        )
    return AdoptionPlan(
        cluster=cluster.name,
        operator=operator.name,
        namespace=operator.namespace,
        release=operator.name,
        revision=content.release.revision,
        version=version.version,
        chart_digest=version.chart_digest,
        differences=differences,
        notices=notices,
    )


def _row(cluster_id: uuid.UUID, operator_id: uuid.UUID) -> str:
    return f"{cluster_id}/{operator_id}"
