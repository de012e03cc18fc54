"""Rendering: from a checkout, a project's deployment and what an environment brings, to the objects that may be applied."""

from __future__ import annotations

import asyncio

from kapsa.environments.checkout import Checkout
from kapsa.environments.program import Limits
from kapsa.environments.render.cache import RenderCache
from kapsa.environments.render.filter import FilterRules, filter_objects
from kapsa.environments.render.helm import render_chart
from kapsa.environments.render.image import image_objects
from kapsa.environments.render.inputs import Injected, Rendered
from kapsa.environments.render.kustomize import build_kustomization
from kapsa.environments.render.manifests import read_manifests
from kapsa.environments.render.transform import inject
from kapsa.environments.resources import Deployment

__all__ = ["Renderer"]

_MIB = 1024 * 1024


class Renderer:
    """Renders with the real tools, a few at a time, and nothing twice."""

    def __init__(
        self,
        *,
        timeout: float = 60.0,
        memory_bytes: int = 512 * _MIB,
        concurrency: int = 4,
        kube_version: str = "",
        cache: RenderCache | None = None,
    ) -> None:
        self._limits = Limits(
            seconds=timeout, memory_bytes=memory_bytes, output_bytes=8 * _MIB, file_bytes=8 * _MIB
        )
        self._kube_version = kube_version
        """The cluster's version, for charts that ask; helm's own idea of it if empty."""
        self._cache = cache or RenderCache()
        self._at_once = asyncio.Semaphore(concurrency)

    async def render(
        self, checkout: Checkout, deployment: Deployment, injected: Injected, rules: FilterRules
    ) -> Rendered:
        """The objects of an environment, filtered.

        :raises RenderFailed: they can't be made from what the repository holds.
        :raises ObjectsRefused: some are not allowed; it names every one of them.
        :raises OutsideError: a limit was passed, or a path leaves the repository.
        """

        async def make() -> Rendered:
            async with self._at_once:
                return await self._make(checkout, deployment, injected)

        key = RenderCache.key(checkout.commit, deployment.type, deployment.path, deployment.values, injected)
        rendered = await self._cache.get(key, make)
        return Rendered(tuple(filter_objects(rendered.objects, rules)), rendered.warnings)

    def render_image(self, injected: Injected, rules: FilterRules) -> Rendered:
        """The objects of an environment that is no more than an image: no repository has a say.

        :raises RenderFailed: there is no image.
        """
        return Rendered(tuple(filter_objects(image_objects(injected), rules)))

    async def _make(self, checkout: Checkout, deployment: Deployment, injected: Injected) -> Rendered:
        if deployment.type == "image":
            return Rendered(tuple(image_objects(injected)))
        if deployment.type == "helm":
            chart = checkout.directory(deployment.path)
            return await render_chart(
                chart, deployment.values, injected, limits=self._limits, kube_version=self._kube_version
            )
        if deployment.type == "kustomize":
            directory = checkout.directory(deployment.path)
            objects = await build_kustomization(checkout.root, directory, limits=self._limits)
        else:
            path = checkout.resolve(deployment.path)
            if path.is_dir():
                checkout.directory(deployment.path)
            objects = await asyncio.to_thread(read_manifests, checkout.root, path)
        warnings = inject(objects, injected)
        return Rendered(tuple(objects), tuple(warnings))
