"""Registries: whether each is there and takes its credentials, by asking it over its own API."""

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


def _naming_registries(secret: StoredObject, cache: Cache) -> Iterable[Key]:
    """The registries whose credentials are in this Secret."""
    found = []
    for stored in cache.select(Registry.gvk):
        auth = Registry.decode(stored.raw).spec.auth
        if auth is not None and (auth.secret_ref.namespace, auth.secret_ref.name) == secret.key:
            found.append(stored.key)
    return found


class RegistryController(Controller[Registry]):
    """Reconciles Registries."""

    predicates = (generation_changed,)
    # What Secrets hold stays out of the cache.
    watches = (Watch(SECRET, map=_naming_registries, metadata_only=True),)
    rules = (rule_for(SECRET, "get"),)
    max_concurrent_reconciles = 4

    def __init__(
        self, settings: Settings, outgoing: HttpClient, metrics: EnvironmentMetrics | None = None
    ) -> None:
        self.settings = settings
        self.outgoing = outgoing
        self.metrics = metrics or EnvironmentMetrics()
        self.reconcile_timeout = settings.reconciliation_timeout
        super().__init__()

    async def reconcile(self, registry: Registry, ctx: Context[Registry]) -> Requeue | None:
        try:
            await self._verify(registry, ctx)
        except ExternalError as error:
            return await self._failed(registry, ctx, error)
        self.metrics.registry_verifications.labels("Verified").inc()
        ctx.status.verified = True
        ctx.status.last_verified = ctx.now().replace(microsecond=0)
        ctx.condition("Ready", True, reason="Verified", message=f"{registry.spec.endpoint} lets us in")
        return Requeue(after=self.settings.registry_verify_interval)

    async def _verify(self, registry: Registry, ctx: Context[Registry]) -> None:
        spec = registry.spec
        asked = ImageRegistry(
            spec.endpoint,
            self.outgoing,
            credentials=await _credentials(registry, ctx),
            insecure=spec.insecure,
            clock=ctx.client.clock,
        )
        await asked.verify()

    async def _failed(
        self, registry: Registry, ctx: Context[Registry], error: ExternalError
    ) -> Requeue | None:
        """Say what is wrong. No answer says nothing about the credentials: they count as they did before."""
        self.metrics.registry_verifications.labels(error.reason).inc()
        message = f"{error}. {error.hint}" if error.hint else str(error)
        known = registry.status.condition("Ready")
        if known is None or known.reason != error.reason:
            ctx.event("Warning", error.reason, message, action="Verify")
        if error.retryable:
            ctx.condition("Ready", None, reason=error.reason, message=message)
            return Requeue(after=error.retry_after or _RETRY_SECONDS)
        ctx.status.verified = False
        ctx.condition("Ready", False, reason=error.reason, message=message)
        return Requeue(after=self.settings.registry_verify_interval)


async def _credentials(registry: Registry, ctx: Context[Registry]) -> RegistryCredentials | None:
    auth = registry.spec.auth
    if auth is None:
        return None
    reference = auth.secret_ref
    try:
        secret = await ctx.client.get(SECRET, reference.name, namespace=reference.namespace)
    except NotFound:
        raise AuthFailed(
            f"there is no Secret {reference.name} in namespace {reference.namespace}",
            reason="SecretMissing",
            hint="Create it with username and password, or with .dockerconfigjson",
        ) from None
    return RegistryCredentials.from_secret(secret, registry.spec.endpoint)
