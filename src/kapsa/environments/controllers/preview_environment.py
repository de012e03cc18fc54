"""PreviewEnvironments: an image in a namespace of its own with a URL of its own, until its TTL expires.

One reconcile covers creation, changes, restarts and drift. The finalizer deletes the namespace, and a Requeue
expires the preview.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from kapsa.adapters.errors import ExternalError
from kapsa.environments.controllers.lifetime import judge_expiry
from kapsa.environments.expiry import Expiry, ExpiryVerdict
from kapsa.environments.hosts.choice import HostRequest
from kapsa.environments.hosts.pools import DomainPools
from kapsa.environments.images.repository_rules import image_refusal
from kapsa.environments.metrics import PreviewMetrics
from kapsa.environments.namespace_objects.preview_objects import MANAGED_LABELS, PreviewObjects, namespace_of
from kapsa.environments.resources import DomainPool, PreviewEnvironment, Registry, TeamNamespace
from kapsa.environments.settings import Settings
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from kapsa.environments.tenancy.api_server import api_server_ranges, api_server_watches
from kapsa.environments.tenancy.namespaces import (
    NAMESPACE,
    ChildMapping,
    ForeignNamespaceError,
    NamespaceChangingError,
    NamespaceIntendedError,
    claim,
    release,
)
from kapsa.runtime import (
    Cache,
    ClientError,
    Context,
    Controller,
    Key,
    PolicyRule,
    Requeue,
    StoredObject,
    Watch,
    generation_changed,
    rule_for,
)

__all__ = ["PreviewEnvironmentController"]

DEPLOYMENT = "apps/v1/Deployment"
SERVICE = "v1/Service"
INGRESS = "networking.k8s.io/v1/Ingress"
NETWORK_POLICY = "networking.k8s.io/v1/NetworkPolicy"
CHILDREN = (NETWORK_POLICY, DEPLOYMENT, SERVICE, INGRESS)
_LOOK_AGAIN_SECONDS = 60.0


def _namespace_of(stored: StoredObject) -> Iterable[str]:
    return [namespace_of(PreviewEnvironment.decode(stored.raw))]


def _previews_of(namespace: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a namespace to the previews that have it or wait for its current owner to go."""
    return [each.key for each in cache.by_index(PreviewEnvironment, "made namespace", namespace.name)]


def _all_previews(_: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a pool or a Registry to all previews."""
    return [each.key for each in cache.select(PreviewEnvironment.gvk)]


class PreviewEnvironmentController(Controller[PreviewEnvironment]):
    """The controller of PreviewEnvironments."""

    finalizer = "devops.orima.com/finalizer"
    indexes = {"made namespace": _namespace_of}  # noqa: RUF012 - a declaration
    watches = (
        # All namespaces: one of another owner has none of our labels, yet blocks a preview.
        Watch(NAMESPACE, map=_previews_of),
        *(Watch(kind, map=ChildMapping(PreviewEnvironment), labels=MANAGED_LABELS) for kind in CHILDREN),
        # A pool with the domain of previews allocates their hosts from then on.
        Watch(DomainPool, map=_all_previews, predicates=(generation_changed,)),
        # A Registry decides which namespaces may run its images.
        Watch(Registry, map=_all_previews, predicates=(generation_changed,)),
        *api_server_watches(PreviewEnvironment),
    )
    rules = (
        rule_for(PreviewEnvironment, "delete"),
        rule_for(NAMESPACE, "create", "patch", "delete"),
        *(rule_for(kind, "create", "patch") for kind in CHILDREN),
        rule_for(INGRESS, "delete"),
        PolicyRule(
            group="kapsa-project.io", resources=("domainpools/status",), verbs=("patch",), namespaced=False
        ),
    )

    def __init__(
        self, settings: Settings, metrics: PreviewMetrics | None = None, domains: DomainPools | None = None
    ) -> None:
        self.settings = settings
        self.metrics = metrics or PreviewMetrics()
        self._expiry = Expiry()
        self._domains = domains or DomainPools(settings)
        self.max_concurrent_reconciles = settings.max_concurrent_reconciles
        self.reconcile_timeout = settings.reconciliation_timeout
        super().__init__()

    async def reconcile(
        self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment]
    ) -> Requeue | None:
        self.metrics.reconciled.inc(str(preview.spec.pr_number))
        ctx.status.expires_at = expiry(preview)
        lifetime = await judge_expiry(
            self._expiry,
            preview,
            ctx,
            since=preview.metadata.creation_timestamp,
            unbraked=preview.metadata.annotations.get(ALLOW_MASS_DELETION) == "true",
        )
        if lifetime.expired:
            await self._expire(preview, ctx)
            return None
        children, team = PreviewObjects(preview, self.settings), _team_of(preview, ctx)
        try:
            await self._protect(ctx, children)
            if why := image_refusal(ctx.list(Registry, namespace=""), team, children.image):
                return self._image_refused(ctx, why, lifetime)
            await self._domains.hold(ctx, _host_request(preview, children, team))
            await self._provision(preview, ctx, children)
        except (ForeignNamespaceError, NamespaceChangingError) as obstacle:
            return self._blocked(ctx, obstacle, lifetime)
        except ExternalError as refusal:
            return await self._without_host(ctx, children, refusal, lifetime)
        return Requeue(after=lifetime.after) if lifetime.after is not None else None

    async def finalize(self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment]) -> Requeue | None:
        waits_for = await release(ctx)
        if not waits_for:
            await self._domains.release(ctx, preview.metadata.uid)
            self._expiry.forget(preview.metadata.uid)
            return None
        ctx.condition("Ready", False, reason="NamespaceTerminating", message=waits_for)
        return Requeue(after=self.settings.deletion_report_after)

    async def _expire(self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment]) -> None:
        if await ctx.delete(preview):
            self.metrics.expired.inc()
            seconds = preview.spec.ttl_seconds
            ctx.event("Normal", "Expired", f"deleted {seconds} s after its creation", action="Delete")

    async def _protect(self, ctx: Context[PreviewEnvironment], children: PreviewObjects) -> None:
        """Apply the namespace and its network policy, before the pod: it never runs unprotected."""
        async with self._step("namespace"):
            await claim(ctx, children.namespace, self.settings, labels=children.namespace_labels)
        async with self._step("networkpolicy"):
            await ctx.apply(children.network_policy(api_server_ranges(ctx, self.settings)), owner=False)

    async def _provision(
        self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment], children: PreviewObjects
    ) -> None:
        """Apply the workload of a preview and its route, and report the progress."""
        made = preview.status.ready_at is not None
        async with self._step("update" if made else "deployment"):
            deployment = await ctx.apply(children.deployment(), owner=False)
        async with self._step("service"):
            await ctx.apply(children.service(), owner=False)
        async with self._step("ingress"):
            await ctx.apply(children.ingress(), owner=False)
        ctx.status.url = children.url
        ctx.status.image = children.image
        self._report(preview, ctx, deployment)

    def _report(
        self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment], deployment: dict[str, Any]
    ) -> None:
        """Report the rollout in the status; the first completed rollout counts as the creation."""
        failure = failed_rollout(deployment)
        if rolled_out(deployment):
            ctx.status.phase = "Ready"
            ctx.condition("Ready", True, reason="Available", message=f"serving at {ctx.status.url}")
            if preview.status.ready_at is None:
                self._created(preview, ctx)
        elif failure:
            if preview.status.phase != "Failed":
                self.metrics.failed.labels("update" if preview.status.ready_at else "deployment").inc()
            ctx.status.phase = "Failed"
            ctx.condition("Ready", False, reason="RolloutFailed", message=failure)
        else:
            ctx.status.phase = "Deploying"
            ctx.condition(
                "Ready", False, reason="RollingOut", message=f"waiting for {ctx.status.image} to be available"
            )

    def _created(self, preview: PreviewEnvironment, ctx: Context[PreviewEnvironment]) -> None:
        now = ctx.now()
        ctx.status.ready_at = now.replace(microsecond=0)
        self.metrics.created.inc(preview.spec.branch_name)
        if preview.metadata.creation_timestamp is not None:
            seconds = (now - preview.metadata.creation_timestamp).total_seconds()
            self.metrics.creation_seconds.observe(max(0.0, seconds))

    def _blocked(
        self,
        ctx: Context[PreviewEnvironment],
        obstacle: ForeignNamespaceError | NamespaceChangingError,
        lifetime: ExpiryVerdict,
    ) -> Requeue | None:
        """Report the obstacle and requeue: at once if it is gone, else after a watch event or a delay."""
        ctx.condition("Ready", False, reason=obstacle.reason, message=str(obstacle))
        if isinstance(obstacle, ForeignNamespaceError):
            if ctx.status.phase != "Failed":
                self.metrics.failed.labels("namespace").inc()
            ctx.status.phase = "Failed"
        else:
            ctx.status.phase = "Pending"
            if isinstance(obstacle, NamespaceIntendedError):
                return Requeue(after=0)
        left = lifetime.after if lifetime.after is not None else _LOOK_AGAIN_SECONDS
        return Requeue(after=min(_LOOK_AGAIN_SECONDS, left))

    async def _without_host(
        self,
        ctx: Context[PreviewEnvironment],
        children: PreviewObjects,
        refusal: ExternalError,
        lifetime: ExpiryVerdict,
    ) -> Requeue:
        """Report that the preview may not have its host, and withdraw its route: a host never has two owners."""
        await ctx.delete(INGRESS, children.ingress_name, namespace=children.namespace)
        ctx.status.url = None
        self._fail(ctx, "ingress", refusal.reason, str(refusal), refusal.hint)
        left = lifetime.after if lifetime.after is not None else _LOOK_AGAIN_SECONDS
        return Requeue(after=min(_LOOK_AGAIN_SECONDS, left))

    def _image_refused(
        self, ctx: Context[PreviewEnvironment], why: str, lifetime: ExpiryVerdict
    ) -> Requeue | None:
        """Report that the preview may not run its image. A version that runs already keeps serving."""
        hint = "Use another image, or ask an administrator to change allowedNamespaces or repositories of the Registry"
        self._fail(ctx, "deployment", "RegistryNotAllowed", why, hint)
        return Requeue(after=lifetime.after) if lifetime.after is not None else None

    def _fail(
        self, ctx: Context[PreviewEnvironment], step: str, reason: str, message: str, hint: str
    ) -> None:
        ctx.condition("Ready", False, reason=reason, message=f"{message}. {hint}")
        if ctx.status.phase != "Failed":
            self.metrics.failed.labels(step).inc()
            ctx.event("Warning", reason, message, action="Deploy")
        ctx.status.phase = "Failed"

    @asynccontextmanager
    async def _step(self, name: str) -> AsyncIterator[None]:
        """Count a failed request of a step, and raise it again."""
        try:
            yield
        except ClientError:
            self.metrics.failed.labels(name).inc()
            raise


def _team_of(preview: PreviewEnvironment, ctx: Context[PreviewEnvironment]) -> TeamNamespace:
    """Return the namespace of a preview, and subscribe to changes of its labels."""
    namespace = ctx.get(NAMESPACE, preview.namespace, namespace="", track=True)
    labels = (namespace["metadata"].get("labels") or {}) if namespace is not None else {}
    return TeamNamespace(preview.namespace, labels)


def _host_request(preview: PreviewEnvironment, children: PreviewObjects, team: TeamNamespace) -> HostRequest:
    return HostRequest(
        uid=preview.metadata.uid,
        kind="PreviewEnvironment",
        environment=str(preview.metadata),
        host=children.host,
        team=team,
    )


def expiry(preview: PreviewEnvironment) -> datetime | None:
    """Return the time at which the preview expires, counted from its creation."""
    created, seconds = preview.metadata.creation_timestamp, preview.spec.ttl_seconds
    return None if created is None or seconds is None else created + timedelta(seconds=seconds)


def rolled_out(deployment: dict[str, Any]) -> bool:
    """Return whether the current spec is observed and all replicas are available."""
    status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    return bool(
        status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", math.inf)
        and status.get("updatedReplicas", 0) >= replicas
        and status.get("availableReplicas", 0) >= replicas
        and status.get("replicas", 0) <= replicas
    )


def failed_rollout(deployment: dict[str, Any]) -> str:
    """Return the cause of a failed rollout; empty if it has not failed."""
    for condition in (deployment.get("status") or {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message", "pods cannot be created"))
        if condition["type"] == "Progressing" and condition["status"] == "False":
            return str(condition.get("message", "the Deployment makes no progress"))
    return ""
