"""Rendering for an Environment: what it and its project say, put together. What `dependencies.Renders` asks for."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kapsa.environments.dependencies import RenderRequest
from kapsa.environments.image_reference import ImageReference
from kapsa.environments.names import label_value, release_name
from kapsa.environments.render.filter import FilterRules
from kapsa.environments.render.inputs import Injected, Manifest
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.repository import Repositories
from kapsa.environments.settings import Settings

__all__ = ["EnvironmentRenderer"]

_log = structlog.get_logger("kapsa.environments.render")


class EnvironmentRenderer:
    """Checks out the commit of an Environment, and renders it with the real tools."""

    def __init__(self, repositories: Repositories, renderer: Renderer, settings: Settings) -> None:
        self._repositories = repositories
        self._renderer = renderer
        self._settings = settings

    async def render(self, request: RenderRequest) -> Sequence[Manifest]:
        """The objects, filtered: only allowed kinds, in this namespace.

        :raises OutsideError: they cannot be made, or are refused.
        """
        project, environment = request.project, request.environment
        injected = self._injected(request)
        rules = FilterRules(
            namespace=request.namespace,
            hosts=(request.host,) if request.host else (),
            pod_security=self._settings.pod_security,
            protected=(("ServiceAccount", "default"),),
        )
        if project.spec.deployment.type == "image":
            return self._renderer.render_image(injected, rules).objects
        source = environment.spec.source
        async with self._repositories.checkout(
            project.spec.source.repository_url,
            request.commit,
            credentials=request.credentials,
            branch=source.branch,
            pull_request=source.pr_number,
        ) as checkout:
            rendered = await self._renderer.render(checkout, project.spec.deployment, injected, rules)
        for warning in rendered.warnings:
            _log.info(
                "rendered with a remark",
                environment=f"{environment.namespace}/{environment.name}",
                remark=warning,
            )
        return rendered.objects

    def _injected(self, request: RenderRequest) -> Injected:
        project, environment = request.project, request.environment
        return Injected(
            release=release_name(project.name),
            namespace=request.namespace,
            image=ImageReference.parse(request.image) if request.image else None,
            host=request.host,
            variables=environment.spec.config.env_vars,
            env_from=request.env_from,
            labels={"app.kubernetes.io/name": label_value(project.name)},
            runtime=environment.spec.runtime,
            restricted=self._settings.pod_security == "restricted",
            service=project.spec.deployment.service,
        )
