"""Two teams on one cluster, one of them hostile, with a Registry and a DomainPool that both may use."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.names import namespace_name
from kapsa.environments.resources import DomainPool, Environment, PreviewEnvironment, Project, Registry
from kapsa.runtime import NotFound
from tests.behaviour.environments.end_to_end import LOGIN, EndToEnd, with_controllers
from tests.environments.sandbox import Sandbox

__all__ = ["HOSTILE_USER", "SHARED_KEYS", "Team", "TwoTeams", "two_teams"]

HOSTILE_USER = "mallory"
"""A person of the hostile team, who is an administrator of its namespaces."""
SHARED_KEYS = {
    "push": LOGIN[1],
    "wildcard": "key-of-the-wildcard-certificate",
    "pull": "word-of-the-shop-to-pull",
    "project": "card-number-of-a-customer",
    "shared pull": "word-of-all-teams-to-pull",
}
"""The secrets that the hostile team is after, by what they are for."""


class Team:
    """A team: its namespace, its repository, and its project called app."""

    def __init__(self, sandbox: Sandbox, namespace: str, repository: GitRepository) -> None:
        self._sandbox = sandbox
        self.namespace = namespace
        self.repository = repository
        self.home = namespace_name(namespace, "app")
        """The namespace of its Environments."""

    def namespace_of(self, environment: str) -> str:
        return namespace_name(self.namespace, "app", environment)

    async def project(self, registry: str, /, *, name: str = "app", **spec: Any) -> Project:
        desired = {
            "source": {"repositoryUrl": self.repository.url, "pollInterval": "24h"},
            "deployment": {"type": "image"},
            "registry": {"name": registry, "imageRepository": f"{self.namespace}/app"},
            **spec,
        }
        desired = {name: value for name, value in desired.items() if value is not None}
        made: Project = await self._sandbox.apply(Project, name, desired, namespace=self.namespace)
        await self._sandbox.until(lambda: self._has_home(name), f"{name} has a namespace", seconds=300)
        return made

    async def _has_home(self, project: str) -> bool:
        namespace = namespace_name(self.namespace, project)
        return await self._sandbox.get("v1/Namespace", namespace, namespace="") is not None

    async def environment(
        self, name: str, commit: str, *, project: str = "app", namespace: str = "", **spec: Any
    ) -> None:
        desired = {"projectRef": {"name": project}, "source": {"commitSha": commit}, **spec}
        await self._sandbox.apply(Environment, name, desired, namespace=namespace or self.home)

    async def get(self, name: str, *, namespace: str = "") -> Environment:
        environment: Environment = await self._sandbox.client.get(
            Environment, name, namespace=namespace or self.home
        )
        return environment

    async def ready(self, name: str) -> Environment:
        return await self.ends(name, "Ready")

    async def ends(self, name: str, reason: str, *, namespace: str = "") -> Environment:
        """Wait until the condition Ready of an environment has this reason. Returns the environment."""
        seen: list[Any] = []

        async def holds() -> Environment | None:
            environment = await self.get(name, namespace=namespace)
            ready = environment.status.condition("Ready")
            seen[:] = [ready]
            return environment if ready is not None and ready.reason == reason else None

        try:
            ended: Environment = await self._sandbox.until(
                holds, f"{name} has the reason {reason}", seconds=300
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None
        return ended


class TwoTeams:
    """The cluster of the two teams, with what its administrator has set up."""

    def __init__(self, e2e: EndToEnd, git: GitServer) -> None:
        self.e2e = e2e
        self.sandbox, self.client, self.settings = e2e.sandbox, e2e.client, e2e.settings
        self.domain = e2e.domain
        self.registry = e2e.sandbox.unique
        self.shared_registry = f"{self.registry}-shared"
        self.shared_secret = f"pull-{self.registry}"
        """The name of the Secret in an environment's namespace with the credentials that all teams pull with."""
        hostile = e2e.sandbox.namespace
        self.evil = Team(e2e.sandbox, hostile, git.repository("evil/app"))
        # The project shop-app of the hostile team would have the same namespaces as the project app of the shop.
        self.shop = Team(e2e.sandbox, f"{hostile}-shop", git.repository("shop/app"))

    async def prepare(self) -> None:
        """Create the namespaces, keys, Registry and DomainPool, as an administrator does."""
        await self.sandbox.make_namespace(self.shop.namespace)
        await self._make_secrets()
        own = self.settings.namespace
        grants = [
            {
                "namespaces": {"names": [team.namespace]},
                "prefixes": ["{namespace}"],
                "pullSecretRef": {"name": secret, "namespace": own},
            }
            for team, secret in ((self.shop, "shop-pull"), (self.evil, "evil-pull"))
        ]
        registry = {
            "endpoint": self.e2e.registry.endpoint,
            "insecure": True,
            "auth": {"secretRef": {"name": "registry", "namespace": own}},
            "repositories": grants,
        }
        await self.sandbox.apply(Registry, self.registry, registry)
        await self.sandbox.condition(Registry, self.registry)
        reserved = {"namespaces": {"names": [self.shop.namespace]}, "labels": ["shop", "shop-*"]}
        pool = {
            "baseDomains": [self.domain],
            "wildcardSecretName": "wildcard",
            "allocationPolicy": {"subdomains": [reserved]},
        }
        await self.sandbox.apply(DomainPool, self.registry, pool)
        previews = {"baseDomains": [self.settings.preview_environment_domain]}
        await self.sandbox.apply(DomainPool, f"{self.registry}-previews", previews)
        await self._make_administrator(HOSTILE_USER, self.evil.namespace)

    async def open_shared_registry(self) -> None:
        """Create a Registry on the same server, from which all teams pull with the same credentials."""
        own = self.settings.namespace
        await self.e2e.secret("shared-pull", own, {"username": "all", "password": SHARED_KEYS["shared pull"]})
        registry = {
            "endpoint": self.e2e.registry.endpoint,
            "insecure": True,
            "auth": {"secretRef": {"name": "registry", "namespace": own}},
            "imagePullSecret": {
                "name": self.shared_secret,
                "secretRef": {"name": "shared-pull", "namespace": own},
            },
        }
        await self.sandbox.apply(Registry, self.shared_registry, registry)
        await self.sandbox.condition(Registry, self.shared_registry)

    async def _make_secrets(self) -> None:
        own, secret = self.settings.namespace, self.e2e.secret
        await secret("wildcard", own, {"tls.crt": "certificate", "tls.key": SHARED_KEYS["wildcard"]})
        await secret("shop-pull", own, {"username": "shop", "password": SHARED_KEYS["pull"]})
        await secret("evil-pull", own, {"username": "evil", "password": "word-of-evil-to-pull"})
        await secret("keys", self.shop.namespace, {"card": SHARED_KEYS["project"]})

    async def _make_administrator(self, user: str, namespace: str) -> None:
        group = "rbac.authorization.k8s.io"
        await self.client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": user, "namespace": namespace},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            }
        )

    async def may(
        self, user: str, verb: str, resource: str, namespace: str, *, subresource: str = "", group: str = ""
    ) -> bool:
        """Return whether a user has a right, as `kubectl auth can-i --as` does."""
        attributes = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
        }
        groups = ["system:authenticated"]
        if user.startswith("system:serviceaccount:"):
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        return bool((await self.client.create(review))["status"]["allowed"])

    async def keys_in(self, namespace: str) -> list[str]:
        """Return what the shared keys are for that Secrets or ConfigMaps of a namespace hold."""
        texts: list[str] = []
        for kind in ("v1/Secret", "v1/ConfigMap"):
            for each in (await self.client.list(kind, namespace=namespace)).items:
                texts += _texts(each.get("data") or {}, encoded=kind == "v1/Secret")
        return [purpose for purpose, key in SHARED_KEYS.items() if any(key in text for text in texts)]

    async def preview(self, team: Team, number: int, *, image: str = "nginx", tag: str = "1") -> None:
        """Ask for the preview of a pull request."""
        spec = {"pr_number": number, "branch_name": "main", "image": image, "image_tag": tag}
        await self.sandbox.apply(PreviewEnvironment, f"pr-{number}", spec, namespace=team.namespace)

    async def preview_ends(self, team: Team, number: int, *reasons: str) -> PreviewEnvironment:
        """Wait until a preview has one of these reasons."""
        seen: list[Any] = []

        async def holds() -> PreviewEnvironment | None:
            preview = await self.sandbox.get(PreviewEnvironment, f"pr-{number}", namespace=team.namespace)
            ready = preview.status.condition("Ready")
            seen[:] = [ready]
            return preview if ready is not None and ready.reason in reasons else None

        try:
            ended: PreviewEnvironment = await self.sandbox.until(
                holds, f"preview {number} has one of {reasons}", seconds=300
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None
        return ended

    async def allocations(self) -> dict[str, str]:
        """Return the environments that hold hosts of the pools, by host."""
        holders: dict[str, str] = {}
        for name in (self.registry, f"{self.registry}-previews"):
            pool: DomainPool = await self.client.get(DomainPool, name)
            holders |= {each.host: each.environment for each in pool.status.allocations}
        return holders

    async def abandon(self) -> None:
        """Delete what another operator on the same cluster would reconcile."""
        free: dict[str, Any] = {"metadata": {"finalizers": None}}
        for shared, name in ((DomainPool, f"{self.registry}-previews"), (Registry, self.shared_registry)):
            with contextlib.suppress(NotFound):
                await self.client.delete(shared, name)
                await self.client.patch(shared, name, free)
        for kind in (Environment, PreviewEnvironment, Project):
            for resource in (await self.client.list(kind)).items:
                if self.sandbox.unique in resource.namespace:
                    with contextlib.suppress(NotFound):
                        await self.client.delete(kind, resource.name, namespace=resource.namespace)
                        await self.client.patch(kind, resource.name, free, namespace=resource.namespace)


def _texts(data: Mapping[str, str], *, encoded: bool) -> Iterator[str]:
    """Yield the values, and what is encoded in them: a pull secret holds logins in base64."""
    for value in data.values():
        text = base64.b64decode(value).decode(errors="replace") if encoded else value
        yield text
        with contextlib.suppress(msgspec.DecodeError):
            document = msgspec.json.decode(text)
            for login in (document.get("auths") or {}).values() if isinstance(document, dict) else ():
                yield base64.b64decode(login.get("auth", "")).decode(errors="replace")


@contextlib.asynccontextmanager
async def two_teams(
    sandbox: Sandbox, git: GitServer, registry: RegistryServer, directory: Path
) -> AsyncIterator[TwoTeams]:
    """Run the operator for two teams in this block."""
    e2e = EndToEnd(sandbox, git.repository("nobody/app"), registry, directory)
    previews = f"previews-{sandbox.unique}.example.com"
    e2e.settings = msgspec.structs.replace(e2e.settings, preview_environment_domain=previews)
    async with with_controllers(e2e), e2e.operator():
        teams = TwoTeams(e2e, git)
        await teams.prepare()
        try:
            yield teams
        finally:
            await teams.abandon()
