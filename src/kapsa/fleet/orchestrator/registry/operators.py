"""Operators: registration of charts, their versions and values. Each write is audited in its own transaction."""

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.registry.operators import (
    ChartSource,
    HttpChart,
    ManagedOperator,
    OciChart,
    OperatorVersion,
    UploadedChart,
)
from kapsa.fleet.domain.values import leaf_paths
from kapsa.fleet.domain.versions import is_version, version_order
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT, check_limit, decode_cursor, page_of
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.charts import Charts, InspectedChart, RepositoryLogin
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository, StoredSecret
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import KeyVault
from kapsa.fleet.orchestrator.registry.names import check_name, check_values
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets, SecretChange
from kapsa.fleet.orchestrator.registry.operator_views import shown_operators
from kapsa.fleet.orchestrator.registry.secret_values import (
    refuse_masks,
    refuse_revealed,
    restored,
    restored_layers,
)
from kapsa.fleet.orchestrator.registry.versions import changed_meanwhile, check_version

__all__ = [
    "AddVersion",
    "Operators",
    "RegisterOperator",
    "RegisteredOperator",
    "UpdateOperator",
]

_RELEASE_LIMIT = 53
"""The longest name of a Helm release: an operator's release has its name."""
_CHART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,249}")
_LARGEST_ARCHIVE = 16 * 1024 * 1024
_LONGEST_GUIDE = 64 * 1024


class RegisterOperator(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to register an operator."""

    name: str
    namespace: str
    source: ChartSource
    version: str = ""
    """The first version; the newest one that is not a prerelease if it is left out."""
    archive: bytes = b""
    """The archive of the first version, if the source is `upload`; base64 in JSON."""
    values: dict[str, Any] = {}
    environment_values: dict[ClusterEnvironment, dict[str, Any]] = {}
    cluster_values: dict[str, dict[str, Any]] = {}
    """Values for single clusters, by their names. They win over those of the environment."""
    secret_values: dict[str, Any] = {}
    """Values that are sealed, and masked wherever they are shown. They win over `values`."""
    credentials: RepositoryLogin | None = None

    def __repr__(self) -> str:
        return f"RegisterOperator({self.name})"  # secret values must not appear in logs


class UpdateOperator(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to change an operator. What is left out stays as it is; null erases secrets and credentials."""

    values: dict[str, Any] | UnsetType = UNSET
    environment_values: dict[ClusterEnvironment, dict[str, Any]] | UnsetType = UNSET
    cluster_values: dict[str, dict[str, Any]] | UnsetType = UNSET
    """All values for single clusters: those of a cluster that is left out are erased."""
    secret_values: dict[str, Any] | UnsetType | None = UNSET
    credentials: RepositoryLogin | UnsetType | None = UNSET

    def __repr__(self) -> str:
        return "UpdateOperator(...)"  # secret values must not appear in logs


class AddVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to register a version of an operator."""

    version: str = ""
    """A semantic version; the newest one that is not a prerelease if it is left out."""
    archive: bytes = b""
    """The archive, if the operator's source is `upload`; base64 in JSON."""
    migration_guide: str = ""

    def __repr__(self) -> str:
        return f"AddVersion({self.version or 'newest'})"


class RegisteredOperator(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a registration."""

    operator: ManagedOperator
    version: OperatorVersion | None
    """The first version; None if the source is `upload` and no archive was sent."""
    warnings: tuple[str, ...] = ()
    """Warnings of the linter."""


class Operators:
    """The use cases of operators."""

    def __init__(
        self,
        transactions: Transactions,
        repository: OperatorRepository,
        charts: Charts,
        vault: KeyVault,
        audit: AuditTrail,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._charts = charts
        self._secrets = OperatorSecrets(repository, vault)
        self._audit = audit

    async def register(self, principal: Principal, request: RegisterOperator) -> RegisteredOperator:
        """Register an operator and its first version, which is pulled, linted and rendered.

        Raises InvalidInput with the reason if the chart cannot be used, and StateConflict if the name is taken.
        """
        _require_writer(principal)
        _check_registration(request)
        async with self._transactions.transaction() as connection:
            if await self._repository.get(connection, request.name) is not None:
                raise _name_taken(request.name)
        operator = ManagedOperator(
            id=uuid.uuid4(),
            name=request.name,
            namespace=request.namespace,
            source=request.source,
            values=request.values,
            environment_values=_named(request.environment_values),
            cluster_values=request.cluster_values,
            created_at=await self._transactions.now(),
            created_by=principal.subject,
            secret_paths=tuple(sorted(leaf_paths(request.secret_values))),
            has_credentials=request.credentials is not None,
        )
        chart = await self._chart(operator, request, request.secret_values, request.credentials)
        sealed = (
            await self._secrets.seal_values(operator.id, request.secret_values),
            await self._secrets.seal_login(operator.id, request.credentials),
        )
        async with self._transactions.transaction() as connection:
            await self._check_clusters(connection, request.cluster_values)
            if not await self._repository.insert(connection, operator):
                raise _name_taken(request.name)
            for each in sealed:
                await self._secrets.put(connection, operator.id, each)
            version = (
                await self._insert_version(connection, principal, operator, chart, "") if chart else None
            )
            await self._record(connection, principal, "operator.register", operator, version)
        (shown,) = await shown_operators((operator,), {operator.id: request.secret_values})
        return RegisteredOperator(shown, version, chart.warnings if chart else ())

    async def page(
        self, principal: Principal, *, cursor: str = "", limit: int = DEFAULT_LIMIT, prefix: str = ""
    ) -> Page[ManagedOperator]:
        """Return operators in the order of their names."""
        _require_reader(principal)
        (after,) = decode_cursor(cursor, 1) or ("",)
        async with self._transactions.transaction(snapshot=True) as connection:
            operators = await self._repository.page(
                connection, after=after, limit=check_limit(limit) + 1, prefix=prefix
            )
            stored = await self._secrets.stored_of(connection, operators)
        shown = await shown_operators(operators, await self._secrets.opened(operators, stored))
        return page_of(shown, limit, lambda each: (each.name,))

    async def get(self, principal: Principal, name: str) -> ManagedOperator:
        """Return an operator. Raises UnknownObject if there is none of this name."""
        _require_reader(principal)
        async with self._transactions.transaction(snapshot=True) as connection:
            operator = await self._existing(connection, name)
            stored = await self._secrets.stored_of(connection, (operator,))
        return await self._shown(operator, stored)

    async def update(
        self, principal: Principal, name: str, request: UpdateOperator, *, expected: int | None = None
    ) -> ManagedOperator:
        """Change the values or credentials of an operator.

        Raises VersionMismatch unless the operator has the expected version, and StateConflict if it is being
        changed right now.
        """
        _require_writer(principal)
        _check_update(request)
        async with self._transactions.transaction() as connection:
            before = await self._existing(connection, name)
            check_version("operator", before, expected)
            if isinstance(request.cluster_values, dict):
                await self._check_clusters(connection, request.cluster_values)
            stored = await self._secrets.stored_of(connection, (before,))
            stored_values = await self._secrets.stored_values(connection, before.id)
            stored_login = await self._secrets.stored_login(connection, before.id)
        secrets = await self._secrets.opened((before,), stored)
        (shown,) = await shown_operators((before,), secrets)
        after = _updated(before, shown, request)
        sealed: list[SecretChange] = []
        if request.secret_values is not UNSET:
            values = request.secret_values or {}
            secrets = {before.id: values}
            sealed.append(await self._secrets.seal_values(before.id, values, before=stored_values))
        if request.credentials is not UNSET:
            login = request.credentials
            sealed.append(await self._secrets.seal_login(before.id, login, before=stored_login))
        (result,) = await shown_operators((after,), secrets)
        if request.secret_values is not UNSET:
            refuse_revealed(_layers(result), _layers(shown), _layers(request))
        await self._store(principal, before, after, request, sealed, expected)
        return result

    async def _store(
        self,
        principal: Principal,
        before: ManagedOperator,
        after: ManagedOperator,
        request: UpdateOperator,
        sealed: Iterable[SecretChange],
        expected: int | None,
    ) -> None:
        """Write a changed operator. What was sealed follows what was stored with this version of it."""
        async with self._transactions.transaction() as connection:
            if isinstance(request.cluster_values, dict):
                await self._check_clusters(connection, request.cluster_values)
            if not await self._repository.update(connection, after, expected=before.version):
                raise changed_meanwhile("operator", before, expected)
            for each in sealed:
                await self._secrets.put(connection, before.id, each)
            fields = [field for field in request.__struct_fields__ if getattr(request, field) is not UNSET]
            await self._record(connection, principal, "operator.update", after, None, fields=fields)

    async def delete(self, principal: Principal, name: str, *, expected: int | None = None) -> None:
        """Delete an operator with its versions and secrets.

        Raises StateConflict while deployments refer to it, and VersionMismatch unless it has the expected version.
        """
        _require_writer(principal)
        async with self._transactions.transaction() as connection:
            operator = await self._existing(connection, name)
            check_version("operator", operator, expected)
            if not await self._repository.delete(connection, operator.id):
                raise StateConflict(
                    f"operator {name} has deployments or installations: remove them first, their history names it"
                )
            await self._record(connection, principal, "operator.delete", operator, None)

    async def add_version(self, principal: Principal, name: str, request: AddVersion) -> RegisteredOperator:
        """Register a version of an operator. The same archive again is accepted.

        Raises InvalidInput if the chart cannot be used, and StateConflict if the version has another archive.
        """
        _require_writer(principal)
        if request.version and not is_version(request.version):
            raise _no_version(request.version)
        if len(request.migration_guide) > _LONGEST_GUIDE:
            message = f"must have at most {_LONGEST_GUIDE} characters"
            raise InvalidInput(f"migrationGuide {message}", InvalidField("/migrationGuide", message))
        async with self._transactions.transaction() as connection:
            operator = await self._existing(connection, name)
            stored_values = await self._secrets.stored_values(connection, operator.id)
            stored_login = await self._secrets.stored_login(connection, operator.id)
        secret_values = await self._secrets.open_values(operator.id, stored_values)
        login = await self._secrets.open_login(operator.id, stored_login)
        chart = await self._chart(operator, request, secret_values, login)
        if chart is None:
            message = "is missing: charts of this operator are uploaded"
            raise InvalidInput(f"archive {message}", InvalidField("/archive", message))
        async with self._transactions.transaction() as connection:
            version = await self._insert_version(
                connection, principal, operator, chart, request.migration_guide
            )
            await self._record(connection, principal, "operator.addVersion", operator, version)
        (shown,) = await shown_operators((operator,), {operator.id: secret_values})
        return RegisteredOperator(shown, version, chart.warnings)

    async def versions(
        self, principal: Principal, name: str, *, cursor: str = "", limit: int = DEFAULT_LIMIT
    ) -> Page[OperatorVersion]:
        """Return the versions of an operator, newest first."""
        _require_reader(principal)
        (before,) = decode_cursor(cursor, 1) or ("",)
        async with self._transactions.transaction() as connection:
            operator = await self._existing(connection, name)
            versions = await self._repository.versions(
                connection, operator.id, before=before, limit=check_limit(limit) + 1
            )
        return page_of(versions, limit, lambda each: (version_order(each.version),))

    async def _shown(
        self, operator: ManagedOperator, stored: Mapping[uuid.UUID, StoredSecret]
    ) -> ManagedOperator:
        return (await shown_operators((operator,), await self._secrets.opened((operator,), stored)))[0]

    async def _existing(self, connection: Connection, name: str) -> ManagedOperator:
        operator = await self._repository.get(connection, name)
        if operator is None:
            raise UnknownObject(f"there is no operator {name[:80]!r}")
        return operator

    async def _check_clusters(self, connection: Connection, names: Iterable[str]) -> None:
        """Raise InvalidInput unless each of these clusters is registered."""
        missing = await self._repository.missing_clusters(connection, names)
        if missing:
            message = f"there is no cluster {missing[0][:80]!r}: register it first, or leave its values out"
            pointer = missing[0][:80].replace("~", "~0").replace("/", "~1")
            raise InvalidInput(
                f"clusterValues: {message}", InvalidField(f"/clusterValues/{pointer}", message)
            )

    async def _chart(
        self,
        operator: ManagedOperator,
        request: RegisterOperator | AddVersion,
        secret_values: Mapping[str, Any],
        login: RepositoryLogin | None,
    ) -> InspectedChart | None:
        uploaded = isinstance(operator.source, UploadedChart)
        if request.archive and not uploaded:
            message = "is only for operators whose source is an upload"
            raise InvalidInput(f"archive {message}", InvalidField("/archive", message))
        if len(request.archive) > _LARGEST_ARCHIVE:
            message = f"is larger than {_LARGEST_ARCHIVE // 1024**2} MB"
            raise InvalidInput(f"archive {message}", InvalidField("/archive", message))
        if uploaded and not request.archive:
            return None
        content = request.archive or await self._charts.fetch(operator.source, request.version, login)
        return await self._charts.inspect(
            content,
            chart=_chart_name(operator.source),
            version=request.version,
            namespace=operator.namespace,
            values=operator.values,
            secret_values=secret_values,
        )

    async def _insert_version(
        self,
        connection: Connection,
        principal: Principal,
        operator: ManagedOperator,
        chart: InspectedChart,
        guide: str,
    ) -> OperatorVersion:
        version = OperatorVersion(
            operator_id=operator.id,
            version=chart.version,
            chart_digest=chart.digest,
            facts=chart.facts,
            created_at=await self._transactions.now(),
            created_by=principal.subject,
            migration_guide=guide,
        )
        if await self._repository.insert_version(connection, version, chart.content, chart.crds):
            return version
        existing = await self._repository.version(connection, operator.id, chart.version)
        if existing is None or existing.chart_digest != chart.digest:
            raise StateConflict(
                f"version {chart.version} of {operator.name} is registered with another archive, "
                f"{existing.chart_digest if existing else 'just now'}: publish the change under a new version"
            )
        return existing

    async def _record(
        self,
        connection: Connection,
        principal: Principal,
        action: str,
        operator: ManagedOperator,
        version: OperatorVersion | None,
        **details: Any,
    ) -> None:
        payload: dict[str, Any] = {"name": operator.name, **details}
        if version is not None:
            payload |= {"version": version.version, "digest": version.chart_digest}
        entry = AuditEntry(
            actor=principal.subject,
            action=action,
            object_kind="operator",
            object_id=str(operator.id),
            payload=payload,
        )
        await self._audit.record(connection, entry)


def _require_writer(principal: Principal) -> None:
    if not principal.has(Role.ADMIN, Role.OPERATOR):
        raise NotAllowed("operators are managed by the roles Operator and Admin")


def _require_reader(principal: Principal) -> None:
    if not principal.roles:
        raise NotAllowed("reading operators needs a role")


def _check_registration(request: RegisterOperator) -> None:
    check_name("name", request.name, longest=_RELEASE_LIMIT)
    check_name("namespace", request.namespace)
    if not _CHART_NAME.fullmatch(_chart_name(request.source)):
        message = "must name a chart: letters, digits, dots, dashes and underscores, at most 250"
        raise InvalidInput(f"source {message}", InvalidField("/source", message))
    if request.version and not is_version(request.version):
        raise _no_version(request.version)
    layers: dict[str, Mapping[str, Any]] = {
        "values": request.values,
        "environmentValues": _named(request.environment_values),
        "clusterValues": request.cluster_values,
        "secretValues": request.secret_values,
    }
    for field, values in layers.items():
        check_values(field, values)
        refuse_masks(field, values)


def _check_update(request: UpdateOperator) -> None:
    if isinstance(request.values, dict):
        check_values("values", request.values)
    if isinstance(request.environment_values, dict):
        check_values("environmentValues", _named(request.environment_values))
    if isinstance(request.cluster_values, dict):
        check_values("clusterValues", request.cluster_values)
    if isinstance(request.secret_values, dict):
        check_values("secretValues", request.secret_values)
        refuse_masks("secretValues", request.secret_values)


def _updated(before: ManagedOperator, shown: ManagedOperator, request: UpdateOperator) -> ManagedOperator:
    """Return an operator after a change. `shown` is what people have seen of it, and may send back."""
    paths = before.secret_paths
    if request.secret_values is not UNSET:
        paths = tuple(sorted(leaf_paths(request.secret_values or {})))
    changes: dict[str, Any] = {"secret_paths": paths, "version": before.version + 1}
    if isinstance(request.values, dict):
        changes["values"] = restored(request.values, before.values, shown.values, frozenset(paths))
    if isinstance(request.environment_values, dict):
        changes["environment_values"] = restored_layers(
            "environmentValues",
            _named(request.environment_values),
            before.environment_values,
            shown.environment_values,
        )
    if isinstance(request.cluster_values, dict):
        changes["cluster_values"] = restored_layers(
            "clusterValues", request.cluster_values, before.cluster_values, shown.cluster_values
        )
    if request.credentials is not UNSET:
        changes["has_credentials"] = request.credentials is not None
    return msgspec.structs.replace(before, **changes)


def _layers(holder: ManagedOperator | UpdateOperator) -> dict[str, Any]:
    fields = msgspec.to_builtins(holder)
    return {name: fields[name] for name in ("values", "environmentValues", "clusterValues") if name in fields}


def _named(
    values: Mapping[ClusterEnvironment, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    return {environment.value: layer for environment, layer in values.items()}


def _chart_name(source: ChartSource) -> str:
    match source:
        case HttpChart(chart=chart) | UploadedChart(chart=chart):
            return chart
        case OciChart(reference=reference):
            return reference.rstrip("/").rpartition("/")[2]


def _name_taken(name: str) -> StateConflict:
    return StateConflict(f"operator {name} exists already")


def _no_version(version: str) -> InvalidInput:
    message = f"must be a semantic version such as 1.4.0, got {version[:80]!r}"
    return InvalidInput(f"version {message}", InvalidField("/version", message))
