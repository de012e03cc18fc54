"""The render step: from a commit to objects, with image, host and variables set."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import ClassVar

from kapsa.adapters.errors import Refused
from kapsa.adapters.manifests.pod_templates import containers, entries, pod_spec
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.build.missing_build import missing_build
from kapsa.environments.images.repository_rules import image_refusal, pull_secret_names
from kapsa.environments.names import REDEPLOY_REQUESTED
from kapsa.environments.namespace_objects.children import RENDERED_KINDS, kind_string, shown
from kapsa.environments.namespace_objects.copies import COPIED_FROM
from kapsa.environments.namespace_objects.kept_values import KeptValues
from kapsa.environments.namespace_objects.reserved_names import KEPT_BY_OPERATOR, RESERVED
from kapsa.environments.ports import ManifestRenderer, RenderRequest
from kapsa.environments.render.environment_renderer import filter_rules
from kapsa.environments.render.filter import filter_objects
from kapsa.environments.resources import EnvironmentRuntime, Registry
from kapsa.environments.resources.environment import Phase
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.secrets import env_from, pull_secret_name
from kapsa.environments.steps.sleep import suspend
from kapsa.environments.steps.step import Done, Outcome, StepFailure

__all__ = ["RenderStep"]

_REPLACED = ("Deployment", "StatefulSet", "DaemonSet")


class RenderStep:
    """The step that renders the objects. Needs commit, image, host and namespace, writes nothing."""

    name: ClassVar[str] = "render"
    condition: ClassVar[str] = "DeploymentReady"
    phase: ClassVar[Phase] = "Deploying"

    def __init__(self, renderer: ManifestRenderer, access: RepositoryAccess, kept: KeptValues) -> None:
        self._renderer = renderer
        self._access = access
        self._kept = kept

    async def run(self, visit: StepRun) -> Outcome:
        request = RenderRequest(
            environment=visit.environment,
            project=visit.project,
            commit=visit.commit,
            namespace=visit.namespace,
            credentials=await self._access.credentials(visit.ctx, visit.project),
            image=visit.image,
            host=visit.host,
            issuer=visit.issuer,
            env_from=env_from(visit),
            pull_secret=pull_secret_name(visit),
            pull_secrets=pull_secret_names(visit.ctx.list(Registry, namespace="")),
        )
        made = await self._renderer.render(request)
        visit.warnings = (*made.warnings, *_fixed_images(visit, made.objects), *_unused_runtime(visit))
        rendered = [copy.deepcopy(each) for each in made.objects]
        await self._kept.settle(visit, made, rendered)
        if made.generated:  # what a deployed Secret holds is in other objects now, and was not judged there
            rendered = filter_objects(rendered, filter_rules(request, visit.settings))
        refusal = _refusal(visit, rendered)
        if refusal is not None:
            return refusal
        visit.ctx.status.redeploy_request = visit.redeploy_request
        rendered = [_redeployed(each, visit.redeploy_request) for each in rendered]
        if visit.environment.spec.suspended:
            rendered = [suspend(each) for each in rendered]
        visit.objects = rendered
        return Done(f"rendered {len(rendered)} objects from commit {visit.commit[:12]}")


def _fixed_images(visit: StepRun, objects: Iterable[Manifest]) -> list[str]:
    """Return a warning for each image of a project without a build that no commit changes."""
    if not missing_build(visit.project):
        return []
    specs = [spec for each in objects if (spec := pod_spec(each)) is not None]
    images = {str(container.get("image") or "") for spec in specs for container in containers(spec)}
    return [f"{image} is the same for every commit" for image in sorted(images) if _is_latest(image)]


def _unused_runtime(visit: StepRun) -> list[str]:
    """Return a warning if the Environment has runtime settings that its type of deployment does not use."""
    kind = visit.project.spec.deployment.type
    if kind == "image" or visit.environment.spec.runtime == EnvironmentRuntime():
        return []
    return [f"runtime of the Environment is not used: deployment.type is {kind}, so set it in the repository"]


def _is_latest(text: str) -> bool:
    try:
        image = ImageReference.parse(text)
    except Refused:
        return False
    return not image.digest and image.tag in ("", "latest")


def _refusal(visit: StepRun, rendered: Iterable[Manifest]) -> StepFailure | None:
    """Return the failure for an object whose kind is not allowed or whose name is reserved or repeated."""
    seen: set[tuple[str, str]] = set()
    for each in rendered:
        identity = (kind_string(each), each["metadata"]["name"])
        why = ""
        if identity[0] not in RENDERED_KINDS:
            why = f"{identity[0]} is not a kind that an environment may have"
        elif identity in seen:
            why = "it is rendered twice"
        elif _is_reserved(visit, *identity):
            why = KEPT_BY_OPERATOR
        else:
            why = _foreign_image(visit, each)
        if why:
            return StepFailure(
                reason="ObjectRefused",
                message=f"{shown(each)}: {why}",
                object=shown(each),
                hint="Remove it from the manifests, or rename it.",
                after=None,
            )
        seen.add(identity)
    return None


def _foreign_image(visit: StepRun, manifest: Manifest) -> str:
    """Return why the project may not run an image of a workload; empty if it may run all."""
    spec = pod_spec(manifest)
    if spec is None:
        return ""
    registries = visit.ctx.list(Registry, namespace="")
    images = [container.get("image") for container in containers(spec)]
    mounted = [volume.get("image") for volume in entries(spec, "volumes")]
    images += [volume.get("reference") for volume in mounted if isinstance(volume, dict)]
    for text in dict.fromkeys(str(image) for image in images if image):
        if why := image_refusal(registries, visit.team, text):
            return f"it may not run {text}: {why}"
    return ""


def _is_reserved(visit: StepRun, kind: str, name: str) -> bool:
    if (kind, name) in RESERVED:
        return True
    live = visit.ctx.get(kind, name, namespace=visit.namespace)
    return live is not None and COPIED_FROM in (live["metadata"].get("labels") or {})


def _redeployed(manifest: Manifest, request: str | None) -> Manifest:
    """Return a workload whose pods are replaced at each new request. A Job runs once, and is left alone."""
    if not request or manifest["kind"] not in _REPLACED:
        return manifest
    template = manifest["spec"]["template"]
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, dict):
        return manifest  # the API server names the field
    metadata = dict(metadata)
    metadata["annotations"] = {**(metadata.get("annotations") or {}), REDEPLOY_REQUESTED: request}
    return {**manifest, "spec": {**manifest["spec"], "template": {**template, "metadata": metadata}}}
