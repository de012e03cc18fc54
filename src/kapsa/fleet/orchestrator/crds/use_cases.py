"""The use cases of CRDs: store, list, validate, approve. Each write is audited in its own transaction."""

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from kapsa.fleet.domain.crds import (
    ChangeSeverity,
    CrdComparison,
    MigrationGuide,
    guides_between,
)
from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.values import canonical_json
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges
from kapsa.fleet.orchestrator.crds.documents import check_document, compare_documents, document_digest
from kapsa.fleet.orchestrator.crds.requests import (
    ApproveCrd,
    ClusterCrdChange,
    CrdDetail,
    CrdValidation,
    StoreCrd,
    ValidateCrd,
)
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT, check_limit, decode_cursor, page_of
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.crds import (
    CrdApproval,
    CrdListing,
    CrdOnCluster,
    CrdRepository,
    CrdRevision,
    LiveResources,
)
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.telemetry import UNMETERED, RegistryMeter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions

__all__ = ["MOST_CRDS", "Crds"]

MOST_CRDS = 50
"""CRDs of one version of an operator, at most."""
_MOST_REVISIONS = 200
_LONGEST_COMMENT = 2_000


class _Step(msgspec.Struct, frozen=True):
    """The way from one revision of a CRD to another."""

    target: CrdRevision
    definition: dict[str, Any]
    base: CrdRevision | None
    comparison: CrdComparison
    digest: str
    guides: tuple[MigrationGuide, ...]


class Crds:
    """The use cases of CRDs."""

    def __init__(
        self,
        transactions: Transactions,
        repository: CrdRepository,
        operators: OperatorRepository,
        live: LiveResources,
        audit: AuditTrail,
        *,
        meter: RegistryMeter = UNMETERED,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._operators = operators
        self._clusters = ClusterChanges(live)
        self._audit = audit
        self._meter = meter

    async def store(self, principal: Principal, request: StoreCrd) -> CrdRevision:
        """Store a CRD with a version of an operator. The same document again changes nothing.

        Raises InvalidInput if an API server would refuse the CRD, and StateConflict if the version has another one.
        """
        if not principal.has(Role.ADMIN, Role.OPERATOR):
            raise NotAllowed("CRDs are stored by the roles Operator and Admin")
        # Large documents take a moment, and other requests must not wait for it.
        crd = await asyncio.to_thread(check_document, request.definition)
        async with self._transactions.transaction() as connection:
            operator_id = await self._version(connection, request.operator, request.version)
            stored = ChartCrd(crd.name, "upload", request.definition)
            inserted = await self._repository.insert(
                connection, operator_id, request.version, stored, principal.subject
            )
            if not inserted:
                await self._check_same(connection, operator_id, request)
            else:
                await self._check_count(connection, operator_id, request.version)
                payload = {"version": request.version, "digest": document_digest(request.definition)}
                await self._record(connection, principal, "crd.store", operator_id, crd.name, payload)
            revision = await self._repository.revision(connection, operator_id, request.version, crd.name)
        if revision is None:
            raise UnknownObject(f"version {request.version} of {request.operator} was deleted meanwhile")
        return revision

    async def page(
        self,
        principal: Principal,
        *,
        cursor: str = "",
        limit: int = DEFAULT_LIMIT,
        operator: str = "",
        prefix: str = "",
    ) -> Page[CrdListing]:
        """Return CRDs in the order of their names and operators."""
        _require_reader(principal)
        name, owner = decode_cursor(cursor, 2) or ("", "")
        async with self._transactions.transaction() as connection:
            listings = await self._repository.page(
                connection,
                after=(name, owner),
                limit=check_limit(limit) + 1,
                operator=operator,
                prefix=prefix,
            )
        return page_of(listings, limit, lambda each: (each.name, each.operator))

    async def get(self, principal: Principal, name: str, *, operator: str = "") -> CrdDetail:
        """Return a CRD with its history, its approvals, and its state on every cluster that has it.

        Raises UnknownObject if no operator has a CRD of this name.
        """
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            revisions = await self._revisions(connection, name, operator)
            clusters = await self._repository.clusters(connection, name)
            approvals = await self._repository.approvals(connection, name, operator=operator)
        return CrdDetail(name, tuple(revisions), tuple(clusters), tuple(approvals))

    async def validate(self, principal: Principal, name: str, request: ValidateCrd) -> CrdValidation:
        """Compare two versions of a CRD, and judge the resources of clusters by the newer one.

        A cluster that cannot be read is reported as such; it does not fail the others.
        """
        if not principal.has(Role.ADMIN, Role.OPERATOR, Role.ENVIRONMENT_OWNER):
            raise NotAllowed("CRDs are validated by the roles Operator, Admin and EnvironmentOwner")
        async with self._transactions.transaction() as connection:
            step = await self._step(connection, name, request.operator, request.version, request.from_version)
            clusters = _chosen(await self._repository.clusters(connection, name), request.clusters)
            approvals = await self._repository.approvals(connection, name, operator=request.operator)
        changes: tuple[ClusterCrdChange, ...] = ()
        if clusters:
            changes = await self._clusters.read(clusters, step.definition)
        self._meter.crd_validated(breaking=step.comparison.severity is ChangeSeverity.BREAKING)
        return CrdValidation.of(
            step.comparison,
            operator=request.operator,
            from_version=step.base.version if step.base is not None else "",
            version=step.target.version,
            digest=step.digest,
            guides=step.guides,
            clusters=changes,
            validated_at=await self._transactions.now(),
            approval=next((each for each in approvals if each.digest == step.digest), None),
        )

    async def approve(self, principal: Principal, name: str, request: ApproveCrd) -> CrdApproval:
        """Approve a breaking or one-way change of a CRD. The same approval again changes nothing.

        Raises StateConflict if the findings are not those that the digest stands for, or need no approval.
        """
        if not principal.has(Role.ADMIN):
            raise NotAllowed("only an admin may approve a change of a CRD")
        if len(request.comment) > _LONGEST_COMMENT:
            message = f"must have at most {_LONGEST_COMMENT} characters"
            raise InvalidInput(f"comment {message}", InvalidField("/comment", message))
        async with self._transactions.transaction() as connection:
            step = await self._step(connection, name, request.operator, request.version, request.from_version)
            _check_approval(principal, request, step)
            approval = CrdApproval(
                step.target.operator_id,
                step.target.version,
                name,
                step.base.version if step.base is not None else "",
                step.digest,
                principal.subject,
                await self._transactions.now(),
                request.comment,
            )
            if not await self._repository.insert_approval(connection, approval):
                approvals = await self._repository.approvals(connection, name, operator=request.operator)
                return next(each for each in approvals if each.digest == step.digest)
            payload = {"version": approval.version, "from": approval.from_version, "digest": approval.digest}
            await self._record(connection, principal, "crd.approve", approval.operator_id, name, payload)
        return approval

    async def _version(self, connection: Connection, operator: str, version: str) -> uuid.UUID:
        registered = await self._operators.get(connection, operator)
        if registered is None:
            raise UnknownObject(f"there is no operator {operator[:80]!r}")
        if await self._operators.version(connection, registered.id, version) is None:
            raise UnknownObject(f"operator {operator} has no version {version[:80]!r}: register it first")
        return registered.id

    async def _check_count(self, connection: Connection, operator_id: uuid.UUID, version: str) -> None:
        """Raise StateConflict, which undoes the insert, if a version has too many CRDs with the new one."""
        if await self._repository.count(connection, operator_id, version) > MOST_CRDS:
            raise StateConflict(f"version {version} has {MOST_CRDS} CRDs already, the most that one may have")

    async def _check_same(self, connection: Connection, operator_id: uuid.UUID, request: StoreCrd) -> None:
        name = str(request.definition["metadata"]["name"])
        present = await self._repository.definition(connection, operator_id, request.version, name)
        if present is None or document_digest(present) != document_digest(request.definition):
            raise StateConflict(
                f"version {request.version} of {request.operator} has another {name}: "
                "publish the change under a new version"
            )

    async def _revisions(self, connection: Connection, name: str, operator: str) -> list[CrdRevision]:
        revisions = await self._repository.revisions(
            connection, name, operator=operator, limit=_MOST_REVISIONS
        )
        if not revisions:
            owner = f" of operator {operator[:80]!r}" if operator else ""
            raise UnknownObject(f"there is no CRD {name[:253]!r}{owner}")
        return revisions

    async def _step(
        self, connection: Connection, name: str, operator: str, version: str, from_version: str
    ) -> _Step:
        if not operator:
            message = "is required: operators may have CRDs of the same name"
            raise InvalidInput(f"operator {message}", InvalidField("/operator", message))
        revisions = await self._revisions(connection, name, operator)
        target = _revision(revisions, version) if version else revisions[0]
        base = _revision(revisions, from_version) if from_version else _before(revisions, target)
        definition = await self._definition(connection, target)
        comparison = CrdComparison(name, (), ())
        if base is not None:
            old = await self._definition(connection, base)
            comparison = await asyncio.to_thread(compare_documents, old, definition)
        guides = [MigrationGuide(each.version, each.migration_guide) for each in revisions]
        way = guides_between(guides, base.version if base is not None else "", target.version)
        return _Step(target, definition, base, comparison, _digest(comparison, base, target), way)

    async def _definition(self, connection: Connection, revision: CrdRevision) -> dict[str, Any]:
        definition = await self._repository.definition(
            connection, revision.operator_id, revision.version, revision.name
        )
        if definition is None:
            raise UnknownObject(f"version {revision.version} of {revision.operator} was deleted meanwhile")
        return definition

    async def _record(
        self,
        connection: Connection,
        principal: Principal,
        action: str,
        operator_id: uuid.UUID,
        name: str,
        payload: dict[str, Any],
    ) -> None:
        entry = AuditEntry(
            actor=principal.subject,
            action=action,
            object_kind="operator",
            object_id=str(operator_id),
            payload={"crd": name, **payload},
        )
        await self._audit.record(connection, entry)


def _require_reader(principal: Principal) -> None:
    if not principal.roles:
        raise NotAllowed("reading CRDs needs a role")


def _revision(revisions: Sequence[CrdRevision], version: str) -> CrdRevision:
    for revision in revisions:
        if revision.version == version:
            return revision
    raise UnknownObject(f"version {version[:80]!r} does not have the CRD {revisions[0].name}")


def _before(revisions: Sequence[CrdRevision], target: CrdRevision) -> CrdRevision | None:
    """Return the revision of the next older version: revisions are in the order of versions, newest first."""
    index = revisions.index(target)
    return revisions[index + 1] if index + 1 < len(revisions) else None


def _chosen(clusters: Sequence[CrdOnCluster], names: tuple[str, ...] | None) -> list[CrdOnCluster]:
    if names is None:
        return list(clusters)
    by_name = {cluster.cluster: cluster for cluster in clusters}
    missing = [name for name in names if name not in by_name]
    if missing:
        message = f"has {missing[0][:80]!r}, which does not have the CRD by its last inventory"
        raise InvalidInput(f"clusters {message}", InvalidField("/clusters", message))
    return [by_name[name] for name in dict.fromkeys(names)]


def _digest(comparison: CrdComparison, base: CrdRevision | None, target: CrdRevision) -> str:
    """Return what an approval is bound to: both definitions, and the findings between them."""
    document = {
        "operator": str(target.operator_id),
        "crd": target.name,
        "from": base.digest if base is not None else "",
        "to": target.digest,
        "findings": sorted(finding.headline for finding in comparison.findings),
        "oneWay": comparison.one_way,
    }
    return "sha256:" + hashlib.sha256(canonical_json(document)).hexdigest()


def _check_approval(principal: Principal, request: ApproveCrd, step: _Step) -> None:
    if principal.subject == step.target.created_by:
        raise NotAllowed("nobody may approve a CRD that they stored")
    if request.digest != step.digest:
        raise StateConflict(
            "the findings are not those of this digest: validate the CRD again, and read them"
        )
    if step.comparison.severity is not ChangeSeverity.BREAKING and not step.comparison.one_way:
        raise StateConflict("the change is neither breaking nor one-way: it needs no approval")
