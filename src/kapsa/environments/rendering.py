"""From a commit to an environment's objects: the checkout, what the environment puts in, and what it may have."""

from __future__ import annotations

from collections.abc import Sequence

from kapsa.environments.dependencies import RenderRequest
from kapsa.environments.image_reference import ImageReference
from kapsa.environments.names import label_value, release_name
from kapsa.environments.render import FilterRules, Injected, Manifest, Renderer
from kapsa.environments.repository import Repositories
from kapsa.environments.settings import Settings

__all__ = ["CommitRenderer"]


class CommitRenderer:
    """Renders commits of projects' repositories."""

    def __init__(self, settings: Settings, repositories: Repositories, renderer: Renderer) -> None:
        self._settings = settings
        self._repositories = repositories
        self._renderer = renderer

    async def render(self, request: RenderRequest) -> Sequence[Manifest]:
        """The objects of the environment, all of which may be applied.

        :raises OutsideError: they cannot be made, or some are refused.
        """
        deployment = request.project.spec.deployment
        injected, rules = self._injected(request), self._rules(request)
        if deployment.type == "image":
            return self._renderer.render_image(injected, rules).objects
        source = request.environment.spec.source
        async with self._repositories.checkout(
            request.project.spec.source.repository_url,
            request.commit,
            credentials=request.credentials,
            branch=source.branch,
            pull_request=source.pr_number,
        ) as checkout:
            return (await self._renderer.render(checkout, deployment, injected, rules)).objects

    def _injected(self, request: RenderRequest) -> Injected:
        environment, project = request.environment, request.project
        return Injected(
            release=release_name(project.name, environment.name),
            namespace=request.namespace,
            image=ImageReference.parse(request.image) if request.image is not None else None,
            host=request.host,
            variables=environment.spec.config.env_vars,
            env_from=request.env_from,
            labels={"app.kubernetes.io/part-of": label_value(project.name)},
            runtime=environment.spec.runtime,
            restricted=self._settings.pod_security == "restricted",
            service=project.spec.deployment.service,
        )

    def _rules(self, request: RenderRequest) -> FilterRules:
        return FilterRules(
            namespace=request.namespace,
            hosts=[request.host] if request.host is not None else [],
            pod_security=self._settings.pod_security,
        )
