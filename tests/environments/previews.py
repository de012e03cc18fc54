"""A PreviewEnvironment for tests, and the operator that reconciles it."""

from __future__ import annotations

from typing import Any

from kapsa.environments.controllers.preview_environment import (
    DEPLOYMENT,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    PreviewEnvironmentController,
)
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import PreviewEnvironment
from kapsa.environments.settings import Settings
from kapsa.runtime import Operator
from tests.environments.sandbox import Sandbox

NAMESPACE = "v1/Namespace"


def make_operator(settings: Settings | None = None) -> Operator:
    metrics = EnvironmentMetrics()
    controller = PreviewEnvironmentController(settings or Settings(), metrics.previews)
    return Operator(controllers=[controller], collect=metrics.collect)


def spec(number: int, **more: Any) -> dict[str, Any]:
    return {
        "pr_number": number,
        "branch_name": f"feature/{number}",
        "image": "youruser/my-app",
        "image_tag": "a3f9c2d",
        **more,
    }


class Preview:
    """One preview of a test."""

    def __init__(self, sandbox: Sandbox, number: int | None = None, name: str = "") -> None:
        self.sandbox = sandbox
        self.number = sandbox.number if number is None else number
        self.name = name or f"pr-{self.number}-env"
        self.namespace = f"preview-pr-{self.number}"

    async def ask(self, **more: Any) -> PreviewEnvironment:
        resource: PreviewEnvironment = await self.sandbox.apply(
            PreviewEnvironment, self.name, spec(self.number, **more)
        )
        return resource

    async def ready(self) -> PreviewEnvironment:
        resource: PreviewEnvironment = await self.sandbox.condition(PreviewEnvironment, self.name)
        return resource

    async def child(self, kind: str, suffix: str) -> Any:
        return await self.sandbox.get(kind, f"pr-{self.number}-{suffix}", namespace=self.namespace)

    async def children(self) -> dict[str, Any]:
        names = {NETWORK_POLICY: "netpol", DEPLOYMENT: "app", SERVICE: "svc", INGRESS: "ingress"}
        return {kind: await self.child(kind, suffix) for kind, suffix in names.items()}

    async def delete(self) -> None:
        await self.sandbox.client.delete(PreviewEnvironment, self.name, namespace=self.sandbox.namespace)

    async def gone(self) -> None:
        await self.sandbox.gone(NAMESPACE, self.namespace, namespace="")
        await self.sandbox.gone(PreviewEnvironment, self.name)
