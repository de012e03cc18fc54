"""Clusters: registration of untrusted kubeconfigs, and what is known about each cluster."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import (
    ClusterCondition,
    ClusterEnvironment,
    ClusterHealth,
    ManagedCluster,
)
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow, check_windows
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT, check_limit, decode_cursor, page_of
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.clusters import (
    ClusterCredential,
    ClusterFilter,
    ClusterGateway,
    ClusterIdentity,
    ClusterReading,
    ClusterRepository,
    ClusterUnreachable,
    IssuedAccess,
)
from kapsa.fleet.orchestrator.ports.telemetry import UNMETERED, RegistryMeter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.registry.adoptions import AdoptionPlan, Adoptions, AdoptRelease
from kapsa.fleet.orchestrator.registry.cluster_credentials import (
    ClusterCredentials,
    upload_warnings,
)
from kapsa.fleet.orchestrator.registry.cluster_monitor import judge_reading
from kapsa.fleet.orchestrator.registry.names import check_labels, check_name
from kapsa.fleet.orchestrator.registry.versions import changed_meanwhile, check_version

__all__ = ["ClusterResult", "Clusters", "RegisterCluster", "UpdateCluster"]

_NAME_LIMIT = 63
_LARGEST_KUBECONFIG = 256 * 1024
_NO_HEALTH = ClusterHealth(ClusterCondition.UNKNOWN, "not checked yet")
_DISCARDED = (
    "The uploaded kubeconfig was erased. The manager now depends on tokens that it renews itself: an outage longer "
    "than a token's life needs a new upload."
)


class RegisterCluster(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to register a cluster."""

    name: str
    environment: ClusterEnvironment
    kubeconfig: str
    """One cluster, one user and one context, with data and no paths, commands or proxies. It is never returned."""
    labels: dict[str, str] = {}
    windows: tuple[MaintenanceWindow, ...] = ()
    freezes: tuple[ChangeFreeze, ...] = ()
    discard_upload: bool = False
    """Erase the kubeconfig once the manager has a token of its own."""

    def __repr__(self) -> str:
        return f"RegisterCluster({self.name})"  # the kubeconfig must not appear in logs


class UpdateCluster(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to change a cluster. What is left out stays as it is."""

    environment: ClusterEnvironment | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    windows: tuple[MaintenanceWindow, ...] | UnsetType = UNSET
    freezes: tuple[ChangeFreeze, ...] | UnsetType = UNSET
    kubeconfig: str | UnsetType = UNSET
    """A new credential for the same cluster."""
    discard_upload: bool = False

    def __repr__(self) -> str:
        return "UpdateCluster(...)"  # the kubeconfig must not appear in logs


class ClusterResult(msgspec.Struct, frozen=True, rename="camel"):
    """A registered or changed cluster."""

    cluster: ManagedCluster
    notices: tuple[str, ...] = ()
    """Consequences of the request that a person should read."""


class _Entered(msgspec.Struct, frozen=True):
    """The result of the first session with a cluster."""

    identity: ClusterIdentity
    reading: ClusterReading
    issued: IssuedAccess


class Clusters:
    """The use cases of clusters."""

    def __init__(
        self,
        transactions: Transactions,
        repository: ClusterRepository,
        gateway: ClusterGateway,
        credentials: ClusterCredentials,
        adoptions: Adoptions,
        audit: AuditTrail,
        *,
        meter: RegistryMeter = UNMETERED,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._gateway = gateway
        self._credentials = credentials
        self._adoptions = adoptions
        self._audit = audit
        self._meter = meter

    async def register(self, principal: Principal, request: RegisterCluster) -> ClusterResult:
        """Register a cluster after a look at it: version, health and inventory, and an account for this manager.

        Raises InvalidInput with the reason if the kubeconfig is not allowed or leads nowhere, and StateConflict if
        the name or the cluster is registered already.
        """
        _require_admin(principal)
        check_name("name", request.name, longest=_NAME_LIMIT)
        check_labels(request.labels)
        check_windows(request.windows, request.freezes)
        kubeconfig = _kubeconfig(request.kubeconfig)
        async with self._transactions.transaction() as connection:
            if await self._repository.get(connection, request.name) is not None:
                raise StateConflict(f"cluster {request.name} exists already")
        cluster = ManagedCluster(
            id=uuid.uuid4(),
            name=request.name,
            environment=request.environment,
            labels=request.labels,
            server="",
            health=_NO_HEALTH,
            created_at=await self._transactions.now(),
            created_by=principal.subject,
            windows=request.windows,
            freezes=request.freezes,
            has_upload=not request.discard_upload,
        )
        entered = await self._enter(cluster, kubeconfig)
        cluster = msgspec.structs.replace(
            cluster,
            server=entered.identity.server,
            health=judge_reading(entered.reading, cluster.created_at),
        )
        sealed = await self._seal(cluster, entered, b"" if request.discard_upload else kubeconfig)
        async with self._transactions.transaction() as connection:
            inserted = await self._repository.insert(connection, cluster, entered.identity.uid)
            if inserted:
                for each in sealed:
                    await self._credentials.put(connection, cluster, each)
                credential = entered.issued.credential_id
                await self._record(connection, principal, "cluster.register", cluster, credential=credential)
        if not inserted:
            await self._withdraw(cluster, entered.issued.kubeconfig)
            raise StateConflict(f"cluster {request.name}, or the cluster that it leads to, exists already")
        self._meter.cluster_registered()
        await self._refresh_inventory(cluster)
        return ClusterResult(cluster, _notices(request, entered, cluster.created_at))

    async def page(
        self,
        principal: Principal,
        *,
        cursor: str = "",
        limit: int = DEFAULT_LIMIT,
        chosen: ClusterFilter | None = None,
    ) -> Page[ManagedCluster]:
        """Return clusters in the order of their names."""
        _require_reader(principal)
        (after,) = decode_cursor(cursor, 1) or ("",)
        async with self._transactions.transaction() as connection:
            clusters = await self._repository.page(
                connection, after=after, limit=check_limit(limit) + 1, chosen=chosen or ClusterFilter()
            )
        return page_of(clusters, limit, lambda each: (each.name,))

    async def get(self, principal: Principal, name: str) -> ManagedCluster:
        """Return a cluster. Raises UnknownObject if there is none of this name."""
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            return await self._existing(connection, name)

    async def health(self, principal: Principal, name: str) -> ClusterHealth:
        """Return the health of a cluster as the last check saw it, at most about a minute ago."""
        return (await self.get(principal, name)).health

    async def update(
        self, principal: Principal, name: str, request: UpdateCluster, *, expected: int | None = None
    ) -> ClusterResult:
        """Change a cluster, or its credential, or erase its uploaded kubeconfig.

        Raises VersionMismatch unless the cluster has the expected version, and StateConflict if it is being changed
        right now.
        """
        _require_admin(principal)
        if isinstance(request.labels, dict):
            check_labels(request.labels)
        before = await self.get(principal, name)
        check_version("cluster", before, expected)
        after = _updated(before, request)
        check_windows(after.windows, after.freezes)
        kubeconfig = _kubeconfig(request.kubeconfig) if isinstance(request.kubeconfig, str) else b""
        entered = await self._enter(before, kubeconfig) if kubeconfig else None
        sealed: tuple[ClusterCredential, ...] = ()
        if entered is not None:
            after = msgspec.structs.replace(after, server=entered.identity.server)
            sealed = await self._seal(before, entered, kubeconfig)
        async with self._transactions.transaction() as connection:
            if not await self._repository.update(connection, after, expected=before.version):
                raise changed_meanwhile("cluster", before, expected)
            for each in sealed:
                if not await self._credentials.put(connection, before, each):
                    raise changed_meanwhile("cluster", before, expected)
            if request.discard_upload:
                await self._credentials.discard_upload(connection, before)
            details = {"credential": entered.issued.credential_id} if entered is not None else {}
            await self._record(
                connection, principal, "cluster.update", after, fields=_changed_fields(request), **details
            )
            after = await self._existing(connection, name)
        return ClusterResult(after, _notices(request, entered, await self._transactions.now()))

    async def delete(
        self, principal: Principal, name: str, *, expected: int | None = None
    ) -> tuple[str, ...]:
        """Delete a cluster, its credentials and what identifies it. Return notices for people.

        The account in the cluster is deleted too, if the cluster answers.

        Raises VersionMismatch unless the cluster has the expected version.
        """
        _require_admin(principal)
        cluster = await self.get(principal, name)
        check_version("cluster", cluster, expected)
        kubeconfig, problem = await self._last_access(cluster)
        async with self._transactions.transaction() as connection:
            check_version("cluster", await self._existing(connection, name), expected)
            operators = await self._repository.delete(connection, cluster.id)
            if operators is None:
                raise StateConflict(f"cluster {name} is part of a deployment: abort it or wait for its end")
            await self._audit.erase(connection, "cluster", str(cluster.id))
            entry = AuditEntry(
                actor=principal.subject,
                action="cluster.delete",
                object_kind="cluster",
                object_id=str(cluster.id),
            )
            await self._audit.record(connection, entry)
            await self._record_lost_values(connection, principal, operators)
        # Last: a cluster that stays registered keeps its account.
        problem = problem or await self._withdraw(cluster, kubeconfig)
        if not problem:
            return ()
        account = self._credentials.account(cluster).name
        return (f"The account {account} could not be deleted in the cluster ({problem}): delete it there.",)

    async def _record_lost_values(
        self, connection: Connection, principal: Principal, operators: Sequence[tuple[uuid.UUID, str]]
    ) -> None:
        """Record the operators whose values for a cluster went with it. The entries do not name the cluster."""
        for operator_id, name in operators:
            entry = AuditEntry(
                actor=principal.subject,
                action="operator.update",
                object_kind="operator",
                object_id=str(operator_id),
                payload={"name": name, "fields": ["cluster_values"], "cause": "cluster.delete"},
            )
            await self._audit.record(connection, entry)

    async def releases(self, principal: Principal, name: str, *, refresh: bool = False) -> ClusterInventory:
        """Return the inventory of a cluster: Helm releases and CRDs. With `refresh`, it is taken again.

        Raises StateConflict if it cannot be taken now.
        """
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            cluster = await self._existing(connection, name)
            inventory = await self._repository.inventory(connection, cluster.id)
        if inventory is not None and not refresh:
            return inventory
        try:
            return await self._take_inventory(cluster)
        except ClusterUnreachable as error:
            raise StateConflict(f"the inventory of {name} cannot be taken: {error}") from None

    async def adopt(self, principal: Principal, name: str, request: AdoptRelease) -> AdoptionPlan:
        """Adopt an existing release, without a change to the cluster: see Adoptions."""
        if not principal.has(Role.ADMIN, Role.OPERATOR):
            raise NotAllowed("releases are adopted by the roles Operator and Admin")
        return await self._adoptions.adopt(principal, await self.get(principal, name), request)

    async def _enter(self, cluster: ManagedCluster, kubeconfig: bytes) -> _Entered:
        """Look at the cluster that a kubeconfig leads to, and make our account there."""
        try:
            async with self._gateway.connect(kubeconfig) as session:
                identity = await session.identify()
                await self._check_identity(cluster, identity)
                reading = await session.read_health()
                issued = await session.bootstrap(self._credentials.account(cluster))
            async with self._gateway.connect(issued.kubeconfig) as session:
                await session.identify()  # the token works, or nothing is registered
        except ClusterUnreachable as error:
            message = f"the cluster cannot be used: {error}"
            raise InvalidInput(message, InvalidField("/kubeconfig", message)) from None
        return _Entered(identity, reading, issued)

    async def _seal(
        self, cluster: ManagedCluster, entered: _Entered, upload: bytes
    ) -> tuple[ClusterCredential, ...]:
        """Seal the token of a cluster, and the upload unless it is empty, with no transaction open."""
        token_version, upload_version = await self._credentials.versions(cluster)
        token = await self._credentials.seal_token(cluster, entered.issued, after=token_version)
        if not upload:
            return (token,)
        valid_until = entered.identity.valid_until
        return token, await self._credentials.seal_upload(cluster, upload, valid_until, after=upload_version)

    async def _check_identity(self, cluster: ManagedCluster, identity: ClusterIdentity) -> None:
        async with self._transactions.transaction() as connection:
            registered = await self._repository.by_id(connection, cluster.id)
            stored = await self._repository.uid(connection, cluster.id)
            other = await self._repository.name_of_uid(connection, identity.uid) if identity.uid else None
        if registered is not None and stored and stored != identity.uid:
            message = (
                f"leads to another cluster than {cluster.name}: register that one under a name of its own"
            )
            raise InvalidInput(f"kubeconfig {message}", InvalidField("/kubeconfig", message))
        if other not in (None, cluster.name):
            raise StateConflict(f"this cluster is registered already, as {other}")

    async def _last_access(self, cluster: ManagedCluster) -> tuple[bytes, str]:
        try:
            return await self._credentials.access(cluster), ""
        except (ClusterUnreachable, InvalidInput) as error:
            return b"", str(error)

    async def _withdraw(self, cluster: ManagedCluster, kubeconfig: bytes) -> str:
        """Delete our account in a cluster. Return the reason if that failed."""
        try:
            async with self._gateway.connect(kubeconfig) as session:
                await session.withdraw(self._credentials.account(cluster))
        except (ClusterUnreachable, InvalidInput) as error:
            return str(error)
        return ""

    async def _refresh_inventory(self, cluster: ManagedCluster) -> None:
        """Take the first inventory. A registration does not fail by it: the next request takes it again."""
        try:
            await self._take_inventory(cluster)
        except ClusterUnreachable:
            return

    async def _take_inventory(self, cluster: ManagedCluster) -> ClusterInventory:
        now = await self._transactions.now()
        async with self._gateway.connect(await self._credentials.access(cluster)) as session:
            inventory = await session.take_inventory(now)
        async with self._transactions.transaction() as connection:
            if await self._repository.by_id(connection, cluster.id) is not None:
                await self._repository.put_inventory(connection, cluster.id, inventory)
        return inventory

    async def _existing(self, connection: Connection, name: str) -> ManagedCluster:
        cluster = await self._repository.get(connection, name)
        if cluster is None:
            raise UnknownObject(f"there is no cluster {name[:80]!r}")
        return cluster

    async def _record(
        self,
        connection: Connection,
        principal: Principal,
        action: str,
        cluster: ManagedCluster,
        **details: Any,
    ) -> None:
        entry = AuditEntry(
            actor=principal.subject,
            action=action,
            object_kind="cluster",
            object_id=str(cluster.id),
            payload={"name": cluster.name, "server": cluster.server, **details},
        )
        await self._audit.record(connection, entry)


def _notices(
    request: RegisterCluster | UpdateCluster, entered: _Entered | None, now: datetime
) -> tuple[str, ...]:
    """Return what a person should know about the uploaded kubeconfig."""
    if request.discard_upload:
        return (_DISCARDED,)
    return upload_warnings(entered.identity.valid_until, now) if entered is not None else ()


def _require_admin(principal: Principal) -> None:
    if not principal.has(Role.ADMIN):
        raise NotAllowed("clusters are managed by the role Admin")


def _require_reader(principal: Principal) -> None:
    if not principal.roles:
        raise NotAllowed("reading clusters needs a role")


def _kubeconfig(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > _LARGEST_KUBECONFIG:
        message = f"is larger than {_LARGEST_KUBECONFIG // 1024} KB"
        raise InvalidInput(f"kubeconfig {message}", InvalidField("/kubeconfig", message))
    return content


def _updated(before: ManagedCluster, request: UpdateCluster) -> ManagedCluster:
    changes: dict[str, Any] = {
        field: value
        for field in ("environment", "labels", "windows", "freezes")
        if (value := getattr(request, field)) is not UNSET
    }
    return msgspec.structs.replace(before, version=before.version + 1, **changes)


def _changed_fields(request: UpdateCluster) -> list[str]:
    fields = ("environment", "labels", "windows", "freezes", "kubeconfig")
    named = [field for field in fields if getattr(request, field) is not UNSET]
    return [*named, "discardUpload"] if request.discard_upload else named
