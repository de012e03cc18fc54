"""Admission: validating webhooks that reject at once what a controller would refuse later.

Each rule is also applied by a controller, through the same function, because a webhook can be disabled, down
or bypassed. The failure policy is Ignore: no write fails because the operator does not respond.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, TypeVar

from kapsa.adapters.errors import ExternalError, Refused
from kapsa.adapters.git.address import RepositoryAddress, check_branch
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.hosts.choice import (
    HostRequest,
    active_pools,
    built_in_pool,
    choose,
    is_open,
    shared_domains,
)
from kapsa.environments.hosts.routes import check_ingress
from kapsa.environments.images.repository_rules import registry_refusal
from kapsa.environments.names import namespace_name
from kapsa.environments.namespace_objects.preview_objects import namespace_of
from kapsa.environments.resources import (
    DomainPool,
    Environment,
    PreviewEnvironment,
    Project,
    Registry,
    TeamNamespace,
)
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import (
    NAMESPACE,
    ForeignNamespaceError,
    refuse_foreign,
    refuse_reserved,
)
from kapsa.environments.tenancy.ownership import (
    PROJECT_MISSING,
    is_namespace_of,
    project_key,
    project_missing,
    team_namespace,
)
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    Client,
    CustomResource,
    NotFound,
    ValidatingWebhook,
    allow,
    deny,
)

__all__ = [
    "DomainPoolValidator",
    "EnvironmentValidator",
    "PreviewEnvironmentValidator",
    "ProjectValidator",
    "validators",
]

T = TypeVar("T", bound=CustomResource[Any, Any])


class _Validator(ValidatingWebhook[T]):
    """The base of all validators: they never block a deletion, nor any write while they do not respond."""

    failure_policy = "Ignore"
    timeout_seconds = 5
    match_conditions = {"stays": "!has(object.metadata.deletionTimestamp)"}  # noqa: RUF012 - a declaration

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    async def validate(self, request: AdmissionRequest[T]) -> AdmissionResponse:
        try:
            warnings = await self.check(request, request.object, request.old_object)
        except ExternalError as refusal:
            hint = f". {refusal.hint}" if refusal.hint else ""
            return deny(f"{refusal}{hint}", reason=refusal.reason)
        except ForeignNamespaceError as refusal:
            return deny(str(refusal), reason=refusal.reason)
        return allow(warnings=warnings)

    async def check(self, request: AdmissionRequest[T], new: T, old: T | None) -> list[str]:
        """Raise an error to reject the object, or return warnings. Fields that an update leaves unchanged are
        not checked again."""
        raise NotImplementedError

    async def _refuse_taken(self, client: Client, namespace: str) -> None:
        """Reject a new resource whose namespace is reserved or has another owner.

        One that is being deleted is waited for instead.
        """
        refuse_reserved(namespace, self._settings)
        live = await _find(client, NAMESPACE, namespace)
        if live is not None and not live["metadata"].get("deletionTimestamp"):
            refuse_foreign(live, "", None)


class ProjectValidator(_Validator[Project]):
    """A validator that rejects repositories that cannot be fetched and names whose namespace is taken.

    It warns about missing references.
    """

    async def check(self, request: AdmissionRequest[Project], new: Project, old: Project | None) -> list[str]:
        if old is not None and old.spec == new.spec:
            return []
        RepositoryAddress.parse(new.spec.source.repository_url, protocols=self._settings.git_protocols)
        for branch in (new.spec.source.branch, *(each.branch for each in new.spec.environments)):
            check_branch(branch)
        if old is None:
            await self._refuse_taken(request.client, namespace_name(new.namespace, new.name))
        await _refuse_foreign_resources(request.client, new)
        return [
            f"{kind.kind} {name} does not exist yet: the environments of the Project wait for it"
            for kind, name in _references(new)
            if await _find(request.client, kind, name) is None
        ]


class EnvironmentValidator(_Validator[Environment]):
    """The check of environments: an existing Project, a free namespace, a valid host and route."""

    async def check(
        self, request: AdmissionRequest[Environment], new: Environment, old: Environment | None
    ) -> list[str]:
        if old is not None and (old.spec.project_ref, old.spec.ingress) == (
            new.spec.project_ref,
            new.spec.ingress,
        ):
            return []
        project = await _project_of(request.client, new)
        namespace, ingress = namespace_name(project.namespace, project.name, new.name), new.spec.ingress
        if old is None:
            await self._refuse_taken(request.client, namespace)
        if ingress.enabled:
            check_ingress(ingress, host=ingress.host, namespace=namespace)
        if ingress.enabled and ingress.host is not None:
            await self._check_host(request.client, new, project)
        return []

    async def _check_host(self, client: Client, environment: Environment, project: Project) -> None:
        pools = (await client.list(DomainPool)).items
        if not active_pools(pools):
            pools = [*pools, built_in_pool(self._settings.preview_domain)]
        team = await _team_of(client, project)
        choose(
            pools,
            HostRequest.of(environment, project, team),
            random.Random(),  # noqa: S311 - a requested host is not chosen at random
            preview_domain=self._settings.preview_environment_domain,
        )


class DomainPoolValidator(_Validator[DomainPool]):
    """A validator that rejects domains that another pool has."""

    async def check(
        self, request: AdmissionRequest[DomainPool], new: DomainPool, old: DomainPool | None
    ) -> list[str]:
        if old is not None and set(new.spec.base_domains) <= set(old.spec.base_domains):
            return []
        others = [pool for pool in (await request.client.list(DomainPool)).items if pool.name != new.name]
        if shared := shared_domains(new, [*others, new]):
            raise Refused(shared, reason="DomainTaken", hint="Give each pool domains of its own")
        return []


class PreviewEnvironmentValidator(_Validator[PreviewEnvironment]):
    """A validator that rejects a second preview of a pull request."""

    async def check(
        self,
        request: AdmissionRequest[PreviewEnvironment],
        new: PreviewEnvironment,
        old: PreviewEnvironment | None,
    ) -> list[str]:
        if old is None:  # the pull request's number cannot be changed
            await self._refuse_taken(request.client, namespace_of(new))
        return []


def validators(settings: Settings) -> tuple[ValidatingWebhook[Any], ...]:
    """Return all validators."""
    return (
        ProjectValidator(settings),
        EnvironmentValidator(settings),
        DomainPoolValidator(settings),
        PreviewEnvironmentValidator(settings),
    )


async def _refuse_foreign_resources(client: Client, project: Project) -> None:
    """Reject a Registry, a repository or a DomainPool that is not open to the project's namespace."""
    team, named, pool_ref = (
        await _team_of(client, project),
        project.spec.registry,
        project.spec.domain.domain_pool_ref,
    )
    registry = await _find(client, Registry, named.name) if named is not None and named.name else None
    if named is not None and registry is not None:
        image = ImageReference.within(registry.spec.endpoint, named.image_repository)
        if why := registry_refusal(registry, team, image):
            raise Refused(
                why, reason="RegistryNotAllowed", hint="Use another repository, or ask an administrator"
            )
    pool = await _find(client, DomainPool, pool_ref.name) if pool_ref is not None else None
    if pool is not None and not is_open(pool, team):
        raise Refused(
            f"DomainPool {pool.name} is not open to namespace {team.name}",
            reason="DomainPoolNotAllowed",
            hint="Use another pool, or ask an administrator",
        )


async def _team_of(client: Client, project: Project) -> TeamNamespace:
    return team_namespace(project, await _find(client, NAMESPACE, project.namespace))


async def _project_of(client: Client, environment: Environment) -> Project:
    namespace = await _find(client, NAMESPACE, environment.namespace)
    key = project_key(namespace)
    if key is not None and key.name == environment.spec.project_ref.name:
        project: Project | None = await _find(client, Project, key.name, namespace=key.namespace)
        if project is not None and is_namespace_of(namespace, project):
            return project
    raise Refused(project_missing(environment), reason=PROJECT_MISSING)


def _references(project: Project) -> list[tuple[type[CustomResource[Any, Any]], str]]:
    """Return the cluster-scoped objects that a project refers to."""
    registry, pool = project.spec.registry, project.spec.domain.domain_pool_ref
    named: list[tuple[type[CustomResource[Any, Any]], str]] = []
    if registry is not None and registry.name is not None:
        named.append((Registry, registry.name))
    if pool is not None:
        named.append((DomainPool, pool.name))
    return named


async def _find(client: Client, kind: Any, name: str, *, namespace: str = "") -> Any:
    with contextlib.suppress(NotFound):
        return await client.get(kind, name, namespace=namespace)
    return None
