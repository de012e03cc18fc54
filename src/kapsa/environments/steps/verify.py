"""The verify step: checks that the URL answers. Optional, by a setting."""

from __future__ import annotations

from typing import ClassVar

from kapsa.adapters.errors import ExternalError
from kapsa.environments.ports import Prober
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.step import Done, Outcome, Waiting

__all__ = ["VerifyStep"]

_AGAIN_SECONDS = 10.0


class VerifyStep:
    """The step that requests the URL through the ingress. Needs the URL, writes nothing."""

    name: ClassVar[str] = "verify"
    condition: ClassVar[str] = "IngressReady"
    phase: ClassVar[Phase] = "Deploying"

    def __init__(self, prober: Prober) -> None:
        self._prober = prober

    async def run(self, visit: StepRun) -> Outcome:
        url = visit.ctx.status.url
        if not visit.settings.verify_routes or url is None:
            return Done(
                f"{url} is routed" if url else "it is not exposed outside the cluster", reason="RouteReady"
            )
        if visit.environment.status.is_true("Ready") and visit.environment.status.url == url:
            return Done(f"{url} responds", reason="Reachable")
        try:
            code = await self._prober.probe(url, address=visit.settings.verify_address)
        except ExternalError as error:
            return Waiting(
                message=f"{url} does not respond: {error}", reason="Unreachable", after=_AGAIN_SECONDS
            )
        if code >= 500:
            return Waiting(
                message=f"{url} responds with status {code}", reason="Unreachable", after=_AGAIN_SECONDS
            )
        return Done(f"{url} responds with status {code}", reason="Reachable")
