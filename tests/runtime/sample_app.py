"""A sample kind and a controller that records its runs, for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kapsa.runtime import Context, Controller, CustomResource, Requeue, Spec, Status

__all__ = ["App", "AppStatus", "Recorder", "app", "config_map"]


class AppSpec(Spec):
    image: str = "nginx"
    replicas: int = 1


class AppStatus(Status):
    ready: int = 0


class App(CustomResource[AppSpec, AppStatus], group="example.com", version="v1"):
    """An application."""


def app(
    name: str = "web", *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return the manifest of an App."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels is not None:
        metadata["labels"] = labels
    return {
        "apiVersion": "example.com/v1",
        "kind": "App",
        "metadata": metadata,
        "spec": {"image": "nginx", **spec},
    }


def config_map(name: str = "web", *, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {"image": "nginx"},
    }


Work = Callable[[App, "Context[App]"], Awaitable[Requeue | None]]


class Recorder(Controller[App]):
    """A controller that runs a given behaviour, and records the resources it was called for."""

    name = "app"

    def __init__(self, work: Work | None = None, **attributes: Any) -> None:
        for attribute, value in attributes.items():
            setattr(self, attribute, value)
        super().__init__()
        self.work = work
        self.runs: list[str] = []

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        self.runs.append(resource.name)
        return await self.work(resource, ctx) if self.work is not None else None
