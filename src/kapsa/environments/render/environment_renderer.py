"""The objects of an Environment: its commit checked out, rendered with its inputs, and filtered."""

from __future__ import annotations

import msgspec

from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.names import label_value, release_name
from kapsa.environments.ports import Rendered, RenderRequest
from kapsa.environments.render.cache import RenderCache
from kapsa.environments.render.filter import FilterRules, filter_objects
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.render.scheduling_rules import SchedulingRules
from kapsa.environments.settings import Settings

__all__ = ["EnvironmentRenderer", "filter_rules"]


class EnvironmentRenderer:
    """A renderer for Environments that renders the same inputs only once."""

    def __init__(
        self,
        repositories: Repositories,
        renderer: Renderer,
        settings: Settings,
        *,
        cache: RenderCache | None = None,
    ) -> None:
        self._repositories = repositories
        self._renderer = renderer
        self._settings = settings
        self._cache = cache or RenderCache()

    async def render(self, request: RenderRequest) -> Rendered:
        """Render the objects of an environment: only allowed kinds, in the environment's namespace.

        Raises `ExternalError` when they do not render, or when some are refused.
        """
        injected = self._injected(request)
        if request.project.spec.deployment.type == "image":
            rendered = self._renderer.render_image(injected)
        else:
            rendered = await self._from_repository(request, injected)
        kept = tuple(filter_objects(rendered.objects, filter_rules(request, self._settings)))
        return msgspec.structs.replace(rendered, objects=kept)

    async def _from_repository(self, request: RenderRequest, injected: Injected) -> Rendered:
        origin, deployment = request.project.spec.source, request.project.spec.deployment

        async def make() -> Rendered:
            source = request.environment.spec.source
            async with self._repositories.checkout(
                origin.repository_url,
                request.commit,
                credentials=request.credentials,
                branch=source.branch,
                pull_request=source.pr_number,
            ) as checkout:
                return await self._renderer.render(checkout, deployment, injected)

        # The credentials are part of the key: they decide who may see a repository.
        key = RenderCache.key(
            (origin.repository_url, request.credentials, request.commit),
            (deployment.type, deployment.path, deployment.values),
            injected,
        )
        return msgspec.structs.replace(await self._cache.get(key, make), inputs=key)

    def _injected(self, request: RenderRequest) -> Injected:
        project, environment = request.project, request.environment
        return Injected(
            # The same in all environments of a project, since each has its own namespace.
            release=release_name(project.name),
            namespace=request.namespace,
            image=ImageReference.parse(request.image) if request.image else None,
            host=request.host,
            variables=environment.spec.config.env_vars,
            env_from=request.env_from,
            pull_secret=request.pull_secret,
            labels={"app.kubernetes.io/name": label_value(project.name)},
            runtime=environment.spec.runtime,
            restricted=self._settings.pod_security == "restricted",
            service=project.spec.deployment.service,
        )


def filter_rules(request: RenderRequest, settings: Settings) -> FilterRules:
    """Return the rules for the objects of an environment."""
    return FilterRules(
        namespace=request.namespace,
        hosts=(request.host,) if request.host else (),
        issuer=request.issuer,
        pod_security=settings.pod_security,
        pull_secrets=request.pull_secrets,
        scheduling=SchedulingRules(
            node_labels=settings.allowed_node_labels,
            taints=settings.allowed_tolerations,
            priority_classes=settings.allowed_priority_classes,
            runtime_classes=settings.allowed_runtime_classes,
            schedulers=settings.allowed_schedulers,
        ),
    )
