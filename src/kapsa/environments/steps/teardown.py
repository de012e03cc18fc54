"""The teardown of an environment: deletes what was created for it, and only that."""

from __future__ import annotations

from kapsa.environments.images.retention import ImageRetention
from kapsa.environments.namespace_objects.builds import EnvironmentBuilds
from kapsa.environments.ports import Domains
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import release
from kapsa.runtime import Context, Requeue

__all__ = ["Teardown"]


class Teardown:
    """The teardown of builds, the namespace, the host, and images if the Registry deletes them."""

    def __init__(
        self, settings: Settings, domains: Domains, builds: EnvironmentBuilds, images: ImageRetention
    ) -> None:
        self._settings = settings
        self._domains = domains
        self._builds = builds
        self._images = images

    async def run(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        """Do the next part of the teardown. Returns None once nothing is left."""
        await self._builds.release(environment, ctx)
        if waits_for := await release(ctx):
            return self._wait(environment, ctx, waits_for)
        await self._domains.release(ctx, environment.metadata.uid)
        await self._images.run(environment, ctx)
        return None

    def _wait(self, environment: Environment, ctx: Context[Environment], waits_for: str) -> Requeue:
        ctx.condition("NamespaceReady", False, reason="Terminating", message=waits_for)
        ctx.condition("Ready", False, reason="Terminating", message=waits_for)
        # An environment that is being deleted is neither ready nor reachable, however long that takes.
        ctx.status.phase = "Pending"
        ctx.status.url, ctx.status.urls, ctx.status.failure = None, [], None
        deleted_at = environment.metadata.deletion_timestamp
        late = self._settings.deletion_report_after
        waited = (ctx.now() - deleted_at).total_seconds() if deleted_at is not None else 0.0
        if waited >= late:
            ctx.event("Warning", "DeletionBlocked", waits_for, action="Delete")
            return Requeue(after=late)
        return Requeue(after=max(1.0, late - waited))
