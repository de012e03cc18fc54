"""The host step: allocates the environment's host, before rendering needs it."""

from __future__ import annotations

from typing import ClassVar

from kapsa.environments.ports import Domains
from kapsa.environments.resources import DomainPool
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.step import Done, Outcome

__all__ = ["HostStep"]


class HostStep:
    """The step that writes the host's allocation into its DomainPool. Needs the project's domain."""

    name: ClassVar[str] = "host"
    condition: ClassVar[str] = "IngressReady"
    phase: ClassVar[Phase] = "Deploying"

    def __init__(self, domains: Domains) -> None:
        self._domains = domains

    async def run(self, visit: StepRun) -> Outcome:
        environment, pool = visit.environment, visit.project.spec.domain.domain_pool_ref
        if pool is not None:
            visit.ctx.track(DomainPool, pool.name, namespace="")
        if not environment.spec.ingress.enabled:
            await self._domains.release(visit.ctx, environment.metadata.uid)
            return Done("ingress.enabled is false: the environment has no host")
        grant = await self._domains.allocate(visit.ctx, environment, visit.project, visit.team)
        visit.host, visit.issuer, visit.wildcard_secret = grant.host, grant.issuer, grant.wildcard_secret
        return Done(f"host {grant.host} is allocated")
