"""The objects of a repository: a chart, a kustomization or plain manifests, with injected parts.

The objects are not filtered yet.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from kapsa.adapters.errors import RenderFailed, TimedOut
from kapsa.adapters.git.checkout import Checkout
from kapsa.adapters.kustomize.kustomization import build_kustomization, is_kustomization
from kapsa.adapters.manifests.files import read_manifests
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.environments.ports import Rendered
from kapsa.environments.render.adaptation import adapt
from kapsa.environments.render.helm import render_environment_chart
from kapsa.environments.render.image import image_objects
from kapsa.environments.render.injection import inject
from kapsa.environments.render.inputs import Injected
from kapsa.environments.resources import Deployment

__all__ = ["PROCESSES", "PROCESS_MEMORY", "Renderer"]

_MIB = 1024 * 1024
PROCESSES = 2
"""The most processes of helm or kustomize at the same time, unless a Renderer has another limit."""
PROCESS_MEMORY = 512 * _MIB
"""The most memory of each. The limit of the operator's container has room for all of them."""
_HINTS = {
    "NoChart": "Set deployment.path to the chart's directory",
    "NoKustomization": "Set deployment.path to the directory of the kustomization",
    "NoManifests": "Check deployment.path",
    "PluginRefused": "To deploy a Helm chart, set deployment.type to helm",
}
"""Remedies that name the project's own fields, by the reason of a failure."""


class Renderer:
    """Rendering with the real tools, a limited number at a time."""

    def __init__(
        self,
        *,
        timeout: float = 60.0,
        memory_bytes: int = PROCESS_MEMORY,
        concurrency: int = PROCESSES,
    ) -> None:
        self._limits = ProcessLimits(
            seconds=timeout, memory_bytes=memory_bytes, output_bytes=8 * _MIB, file_bytes=8 * _MIB
        )
        self._slots = asyncio.Semaphore(concurrency)

    async def render(self, checkout: Checkout, deployment: Deployment, injected: Injected) -> Rendered:
        """Render the objects of a repository for an environment.

        Raises `RenderFailed` when the repository's files do not render, and another `ExternalError` when a
        limit is exceeded or a path leaves the repository.
        """
        async with self._slots:
            try:
                rendered = await self._render(checkout, deployment, injected)
            except TimedOut as error:
                # Nothing outside the repository decides how long it takes: a retry would take as long.
                raise RenderFailed(
                    str(error), hint="Look for a loop in the templates", reason="RenderTooSlow"
                ) from error
            except RenderFailed as error:
                error.hint = error.hint or _HINTS.get(error.reason, "")
                raise
        warnings = (*rendered.warnings, *adapt(rendered.objects, injected))
        return msgspec.structs.replace(rendered, warnings=warnings)

    def render_image(self, injected: Injected) -> Rendered:
        """Return the objects of an environment that runs a single image, without a repository.

        Raises `RenderFailed` when there is no image.
        """
        return Rendered(tuple(image_objects(injected)))

    async def _render(self, checkout: Checkout, deployment: Deployment, injected: Injected) -> Rendered:
        if deployment.type == "helm":
            chart = checkout.directory(deployment.path)
            return await render_environment_chart(chart, deployment.values, injected, limits=self._limits)
        objects = await self._read(checkout, deployment)
        return Rendered(tuple(objects), tuple(inject(objects, injected)))

    async def _read(self, checkout: Checkout, deployment: Deployment) -> list[Manifest]:
        """Read the objects of a kustomization or of plain manifests, as they are in the repository."""
        path = checkout.resolve(deployment.path)
        if path.is_dir():
            checkout.directory(deployment.path)
        if deployment.type == "kustomize":
            return await build_kustomization(checkout.root, path, limits=self._limits)
        _check_plain(path)
        return await asyncio.to_thread(read_manifests, checkout.root, path)


def _check_plain(path: Path) -> None:
    """Reject a directory that is a kustomization or a chart: its files alone are not what it deploys."""
    if is_kustomization(path):
        raise RenderFailed(
            f"{path.name!r} is a kustomization", hint="Set deployment.type to kustomize", reason="WrongType"
        )
    if (path / "Chart.yaml").is_file():
        raise RenderFailed(
            f"{path.name!r} is a Helm chart", hint="Set deployment.type to helm", reason="WrongType"
        )
