"""Rendering: from a checkout, a project's deployment and what an environment brings, to objects that nobody has judged yet."""

from __future__ import annotations

import asyncio

from kapsa.adapters.errors import RenderFailed, TimedOut
from kapsa.adapters.git.checkout import Checkout
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.environments.ports import Rendered
from kapsa.environments.render.adaptation import adapt
from kapsa.environments.render.helm import render_chart
from kapsa.environments.render.image import image_objects
from kapsa.environments.render.injection import inject
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.kustomize import build_kustomization
from kapsa.environments.render.manifests import read_manifests
from kapsa.environments.resources import Deployment

__all__ = ["Renderer"]

_MIB = 1024 * 1024


class Renderer:
    """Renders with the real tools, a few at a time."""

    def __init__(
        self,
        *,
        timeout: float = 60.0,
        memory_bytes: int = 512 * _MIB,
        concurrency: int = 4,
    ) -> None:
        self._limits = ProcessLimits(
            seconds=timeout, memory_bytes=memory_bytes, output_bytes=8 * _MIB, file_bytes=8 * _MIB
        )
        self._at_once = asyncio.Semaphore(concurrency)

    async def render(self, checkout: Checkout, deployment: Deployment, injected: Injected) -> Rendered:
        """The objects that a repository brings. The filter has yet to judge them.

        :raises RenderFailed: they can't be made from what the repository holds.
        :raises ExternalError: a limit was passed, or a path leaves the repository.
        """
        async with self._at_once:
            try:
                rendered = await self._render(checkout, deployment, injected)
            except TimedOut as error:
                # Nobody else has a say in how long it takes: another try would take as long.
                raise RenderFailed(
                    str(error), hint="Look for a loop in the templates", reason="RenderTooSlow"
                ) from error
        return Rendered(rendered.objects, (*rendered.warnings, *adapt(rendered.objects, injected)))

    def render_image(self, injected: Injected) -> Rendered:
        """The objects of an environment that is no more than an image: no repository has a say.

        :raises RenderFailed: there is no image.
        """
        return Rendered(tuple(image_objects(injected)))

    async def _render(self, checkout: Checkout, deployment: Deployment, injected: Injected) -> Rendered:
        if deployment.type == "helm":
            chart = checkout.directory(deployment.path)
            return await render_chart(chart, deployment.values, injected, limits=self._limits)
        objects = await self._read(checkout, deployment)
        return Rendered(tuple(objects), tuple(inject(objects, injected)))

    async def _read(self, checkout: Checkout, deployment: Deployment) -> list[Manifest]:
        """The objects of a kustomization or of plain manifests, as the repository has them."""
        path = checkout.resolve(deployment.path)
        if path.is_dir():
            checkout.directory(deployment.path)
        if deployment.type == "kustomize":
            return await build_kustomization(checkout.root, path, limits=self._limits)
        return await asyncio.to_thread(read_manifests, checkout.root, path)
