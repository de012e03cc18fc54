"""Registries: checks over each registry's own API that it is reachable and accepts its credentials."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.adapters.errors import AuthFailed, ExternalError
from kapsa.adapters.http.client import HttpClient
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import Registry
from kapsa.environments.settings import Settings
from kapsa.runtime import (
    Cache,
    Context,
    Controller,
    Key,
    NotFound,
    Requeue,
    StoredObject,
    Watch,
    generation_changed,
    rule_for,
)

__all__ = ["RegistryController"]

SECRET = "v1/Secret"  # noqa: S105 - a kind
_RETRY_SECONDS = 60.0


def _registries_of(secret: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a Secret to the Registries that take their credentials from it."""
    matches = []
    for stored in cache.select(Registry.gvk):
        auth = Registry.decode(stored.raw).spec.auth
        if auth is not None and (auth.secret_ref.namespace, auth.secret_ref.name) == secret.key:
            matches.append(stored.key)
    return matches


class RegistryController(Controller[Registry]):
    """The controller of Registries."""

    predicates = (generation_changed,)
    # The content of Secrets stays out of the cache.
    watches = (Watch(SECRET, map=_registries_of, metadata_only=True),)
    rules = (rule_for(SECRET, "get"),)
    max_concurrent_reconciles = 4

    def __init__(
        self, settings: Settings, http: HttpClient, metrics: EnvironmentMetrics | None = None
    ) -> None:
        self.settings = settings
        self.http = http
        self.metrics = metrics or EnvironmentMetrics()
        self.reconcile_timeout = settings.reconciliation_timeout
        super().__init__()

    async def reconcile(self, registry: Registry, ctx: Context[Registry]) -> Requeue | None:
        try:
            await self._verify(registry, ctx)
        except ExternalError as error:
            return self._failed(registry, ctx, error)
        self.metrics.registry_verifications.labels("Verified").inc()
        ctx.status.verified = True
        ctx.status.last_verified = ctx.now().replace(microsecond=0)
        ctx.condition(
            "Ready",
            True,
            reason="Verified",
            message=f"{registry.spec.endpoint} is reachable and accepts the credentials",
        )
        _report_pull_secret(registry, ctx)
        return Requeue(after=self.settings.registry_verify_interval)

    async def _verify(self, registry: Registry, ctx: Context[Registry]) -> None:
        spec = registry.spec
        server = ImageRegistry(
            spec.endpoint,
            self.http,
            credentials=await _credentials(registry, ctx),
            insecure=spec.insecure,
            clock=ctx.client.clock,
        )
        await server.verify()

    def _failed(self, registry: Registry, ctx: Context[Registry], error: ExternalError) -> Requeue | None:
        """Report the error.

        A registry that cannot be reached does not invalidate credentials that were accepted before.
        """
        self.metrics.registry_verifications.labels(error.reason).inc()
        message = f"{error}. {error.hint}" if error.hint else str(error)
        before = registry.status.condition("Ready")
        if before is None or before.reason != error.reason:
            ctx.event("Warning", error.reason, message, action="Verify")
        if error.retryable:
            ctx.condition("Ready", None, reason=error.reason, message=message)
            return Requeue(after=error.retry_after or _RETRY_SECONDS)
        ctx.status.verified = False
        ctx.condition("Ready", False, reason=error.reason, message=message)
        return Requeue(after=self.settings.registry_verify_interval)


def _report_pull_secret(registry: Registry, ctx: Context[Registry]) -> None:
    """Set the condition for the credentials with which environments pull."""
    spec = registry.spec
    named = spec.image_pull_secret.secret_ref or any(each.pull_secret_ref for each in spec.repositories)
    if spec.auth is None or not spec.image_pull_secret.generate_per_namespace:
        message = "environments need no pull secret from the operator"
        ctx.condition("PullSecretReady", True, reason="NotRequested", message=message)
    elif named:
        ctx.condition(
            "PullSecretReady", True, reason="PullCredentials", message="environments get a pull secret"
        )
    else:
        message = (
            "environments get no pull secret, since the credentials in auth can push: set imagePullSecret.secretRef to a "
            "Secret with credentials that can only pull"
        )
        ctx.condition("PullSecretReady", False, reason="PullCredentialsMissing", message=message)


async def _credentials(registry: Registry, ctx: Context[Registry]) -> RegistryCredentials | None:
    auth = registry.spec.auth
    if auth is None:
        return None
    reference = auth.secret_ref
    try:
        secret = await ctx.client.get(SECRET, reference.name, namespace=reference.namespace)
    except NotFound:
        raise AuthFailed(
            f"Secret {reference.name} does not exist in namespace {reference.namespace}",
            reason="SecretMissing",
            hint="Create it with username and password, or with .dockerconfigjson",
        ) from None
    return RegistryCredentials.from_secret(secret, registry.spec.endpoint)
