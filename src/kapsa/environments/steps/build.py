"""The build step: resolves the digest of the commit's image, and builds the image if it is missing.

A build starts only after the registry has answered that the image does not exist; a registry that cannot be
reached may have it. A build runs in a namespace of its own, outside the environment's quota, once for all
environments that need its image. A build of a commit that no environment needs any longer is cancelled. The
image's tag contains the commit, so an image that a cancelled build has pushed is never mistaken for another.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

from kapsa.adapters.errors import Refused
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import DigestCache, RegistryAccess
from kapsa.adapters.redaction import tail
from kapsa.environments.build.identity import build_name, image_tag
from kapsa.environments.build.missing_build import NOT_BUILT, missing_build
from kapsa.environments.build.walls import build_walls
from kapsa.environments.images.registry_access import access_to, login_to
from kapsa.environments.images.repository_rules import image_refusal, own_credentials, registry_refusal
from kapsa.environments.images.retention import remember_image
from kapsa.environments.names import MANAGED_BY, OPERATOR, OWNER, OWNER_UID
from kapsa.environments.namespace_objects.builds import BUILD, EnvironmentBuilds, engine_of
from kapsa.environments.namespace_objects.children import JOB, KPACK_IMAGE, shown
from kapsa.environments.ports import BuildProgress, BuildRequest, Builds
from kapsa.environments.resources import Registry
from kapsa.environments.resources.environment import Phase
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.environments.tenancy.api_server import api_server_ranges
from kapsa.environments.tenancy.namespaces import NAMESPACE
from kapsa.runtime import AlreadyExists, ClientError, Forbidden, Invalid, UnknownKind

__all__ = ["BuildStep"]

_LOOK_AGAIN_SECONDS = 60.0
_QUEUED_SECONDS = 15.0


class BuildStep:
    """The step that writes a build into the namespace of builds. Needs the commit and the Registry."""

    name: ClassVar[str] = "build"
    condition: ClassVar[str] = "BuildReady"
    phase: ClassVar[Phase] = "Building"

    def __init__(
        self, builds: Builds, images: DigestCache, access: RepositoryAccess, owned: EnvironmentBuilds
    ) -> None:
        self._builds = builds
        self._images = images
        self._access = access
        self._owned = owned
        self._starting: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def run(self, visit: StepRun) -> Outcome:
        registry = visit.project.spec.registry
        if registry is None:
            return self._without_registry(visit)
        if visit.registry_refusal:
            return _not_allowed(visit, visit.registry_refusal)
        if registry.name is not None and visit.registry is None:
            return StepFailure(
                reason="RegistryMissing",
                message=f"Registry {registry.name} does not exist",
                object=f"Registry {registry.name}",
                hint="Create it, or set registry.name of the Project to another one.",
                after=None,
            )
        image = _image(visit)
        if why := _image_refusal(visit, image):
            return _not_allowed(visit, why)
        name = build_name(visit.project, visit.commit, image)
        await self._owned.release(visit.environment, visit.ctx, build=name, commit=visit.commit)
        build = _find(visit, name)
        if build is not None and (progress := self._builds.progress(build)).state == "running":
            # The image cannot be there yet: spare the registry a request at each event of the build.
            return _building(visit, build, progress)
        scope = visit.registry.metadata.uid if visit.registry is not None else ""
        digest = self._images.cached(image, scope)
        if digest is None:
            digest = await self._images.digest(image, scope, **await _access(visit))
        if digest is not None:
            visit.image = image.with_digest(digest).pinned
            remember_image(visit.ctx, visit.image, visit.registry)
            await self._owned.delete_all(visit.environment, visit.ctx)
            return Done(visit.image, reason="ImageReady")
        return await self._build(visit, image, name)

    def _without_registry(self, visit: StepRun) -> Outcome:
        if visit.project.spec.deployment.type == "image":
            return StepFailure(
                reason="NoImage",
                message="the Project deploys an image, but sets none",
                hint="Set registry.imageRepository of the Project.",
                after=None,
            )
        if why := missing_build(visit.project):
            return Done(why, reason=NOT_BUILT)
        return Done("the rendered objects name their own images", reason="NotRequested")

    # -- the build -------------------------------------------------------------------------------------------

    async def _build(self, visit: StepRun, image: ImageReference, name: str) -> Outcome:
        build = visit.project.spec.build
        if build is None or build.strategy == "none":
            return Waiting(
                message=f"image {image} does not exist yet, and the Project has no build",
                reason="ImageMissing",
                after=_LOOK_AGAIN_SECONDS,
            )
        # Two environments may need the same image at the same time, or the last place in the team's share; only one
        # of them starts a build.
        async with self._starting.setdefault(visit.project.namespace, asyncio.Lock()):
            running = _find(visit, name)
            if running is None and self._owned.is_queued(visit):
                return Waiting(
                    message="waits for other builds of this team, which use its share of all builds",
                    reason="BuildQueued",
                    after=_QUEUED_SECONDS,
                )
            if running is None:
                return await self._start(visit, await self._objects(visit, image, name))
        return await self._assess(visit, running, image)

    async def _objects(self, visit: StepRun, image: ImageReference, name: str) -> list[Manifest]:
        access = await _access(visit)
        request = BuildRequest(
            name=name,
            namespace=visit.settings.build_namespace,
            project=visit.project,
            commit=visit.commit,
            image=image,
            insecure=access.get("insecure", False),
            source=await self._access.credentials(visit.ctx, visit.project),
            push=access.get("credentials"),
            pull=await _team_login(visit),
        )
        return [self._owned.marked(visit, name, each) for each in self._builds.objects(request)]

    async def _start(self, visit: StepRun, objects: list[Manifest]) -> Outcome:
        await _ensure_namespace(visit)
        for each in objects:
            try:
                await visit.ctx.apply(each, owner=False)
            except UnknownKind as error:
                return StepFailure(
                    reason="BuilderMissing",
                    message=str(error),
                    object=shown(each),
                    hint="Ask an administrator to install kpack, or set another build.strategy in the Project.",
                )
            except (Invalid, Forbidden) as error:
                return StepFailure(
                    reason="BuildRejected",
                    message=f"the API server rejected {shown(each)}: {error}",
                    object=shown(each),
                    hint="Check build of the Project, and the policies of the build namespace.",
                )
        engine = engine_of(objects[-1])
        visit.metrics.builds.labels(engine, "started").inc()
        visit.ctx.event("Normal", "BuildStarted", f"{engine} started to build commit {visit.commit[:12]}")
        return Waiting(
            message=f"{shown(objects[-1])} is building commit {visit.commit[:12]}", reason="Building"
        )

    async def _assess(self, visit: StepRun, build: Manifest, image: ImageReference) -> Outcome:
        progress = self._builds.progress(build)
        if progress.state == "running":
            return _building(visit, build, progress)
        if progress.state == "succeeded":
            # The registry was queried before: some list a pushed image only a moment later.
            return Waiting(
                message=f"{shown(build)} has completed, but the registry does not list {image} yet",
                reason="ImageNotPushed",
                after=_LOOK_AGAIN_SECONDS / 4,
            )
        if progress.state == "expired":
            await self._owned.delete_all(visit.environment, visit.ctx)
            return Waiting(
                message=f"{shown(build)} is started again: {progress.message}",
                reason="BuildExpired",
                after=_QUEUED_SECONDS,
            )
        labels = build["metadata"]["labels"]
        if visit.redeploy_request not in (None, visit.ctx.status.redeploy_request):
            visit.ctx.status.redeploy_request = visit.redeploy_request
            await self._owned.delete(labels[BUILD], visit.ctx)
            return Waiting(
                message=f"{shown(build)} failed and is started again, as requested",
                reason="BuildRetried",
                after=_QUEUED_SECONDS,
            )
        own = labels.get(OWNER_UID) == visit.environment.metadata.uid
        if own and not _is_reported(visit, "BuildFailed"):
            visit.metrics.builds.labels(engine_of(build), "failed").inc()
        return StepFailure(
            reason="BuildFailed",
            message=f"commit {visit.commit[:12]} failed to build: {progress.message}",
            object=shown(build),
            log_tail=await _log_tail(visit, build),
            hint="Push a commit that builds, or retry with `kapsa environments redeploy`. The previous version keeps "
            "serving.",
            after=None,
        )


def _image_refusal(visit: StepRun, image: ImageReference) -> str:
    """Return why the project may not have this image, by its own Registry and by all others of that server."""
    own = registry_refusal(visit.registry, visit.team, image) if visit.registry is not None else ""
    return own or image_refusal(visit.ctx.list(Registry, namespace=""), visit.team, str(image))


def _not_allowed(visit: StepRun, why: str) -> StepFailure:
    assert visit.project.spec.registry is not None
    name = visit.project.spec.registry.name
    return StepFailure(
        reason="RegistryNotAllowed",
        message=why,
        object=f"Registry {name}" if name is not None else f"Project {visit.project.name}",
        hint="Set registry of the Project to another Registry or repository, or ask an administrator to change "
        "allowedNamespaces or repositories of the Registry.",
        after=None,
    )


def _find(visit: StepRun, name: str) -> Manifest | None:
    """Return the build of this name, from any environment of the project.

    Raises Refused if it is the build of another project, or of none: what it pushes is not this commit's image.
    """
    for kind in (JOB, KPACK_IMAGE):
        build = visit.ctx.get(kind, name, namespace=visit.settings.build_namespace)
        if build is None:
            continue
        owner = (build["metadata"].get("annotations") or {}).get(OWNER, "")
        if owner.partition("/")[0] != visit.environment.namespace:
            raise Refused(
                f"{shown(build)} in namespace {visit.settings.build_namespace} is not a build of this project "
                f"(its owner is {owner or 'unknown'})",
                reason="BuildNotOurs",
                hint="Ask an administrator to delete it",
            )
        return build
    return None


def _building(visit: StepRun, build: Manifest, progress: BuildProgress) -> Waiting:
    words = f"{shown(build)} is building commit {visit.commit[:12]} {progress.message}".rstrip()
    return Waiting(message=words, reason="Building")


def _image(visit: StepRun) -> ImageReference:
    """Return the image of this commit, in the project's Registry if it names one.

    Raises Refused if the repository is in another registry, which would receive the credentials of this one.
    """
    assert visit.project.spec.registry is not None
    repository = visit.project.spec.registry.image_repository
    image = (
        ImageReference.within(visit.registry.spec.endpoint, repository)
        if visit.registry is not None
        else ImageReference.parse(repository)
    )
    return image.with_tag(image_tag(visit.project, visit.commit))


async def _access(visit: StepRun) -> RegistryAccess:
    """Return the access to the registry, and subscribe to the Secret with its credentials.

    Raises AuthFailed if the Registry names a Secret that does not exist or holds no credentials.
    """
    registry = visit.registry
    if registry is not None and registry.spec.auth is not None:
        reference = registry.spec.auth.secret_ref
        visit.ctx.track("v1/Secret", reference.name, namespace=reference.namespace)
    return await access_to(registry, visit.ctx.client)


async def _team_login(visit: StepRun) -> RegistryCredentials | None:
    """Return the login with which only this team pulls, for base images."""
    if visit.registry is None:
        return None
    reference = own_credentials(visit.registry, visit.team)
    return await login_to(visit.registry, reference, visit.ctx.client)


async def _ensure_namespace(visit: StepRun) -> None:
    """Create the build namespace, and put its walls in place before anything runs in it."""
    namespace = visit.ctx.get(NAMESPACE, visit.settings.build_namespace, namespace="")
    _refuse_foreign_namespace(namespace or await _create_namespace(visit))
    for wall in build_walls(visit.settings, api_server_ranges(visit.ctx, visit.settings)):
        await visit.ctx.apply(wall, owner=False)


async def _create_namespace(visit: StepRun) -> Mapping[str, Any]:
    name = visit.settings.build_namespace
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MANAGED_BY: OPERATOR}},
    }
    try:
        return await visit.ctx.create(manifest, owner=False)
    except AlreadyExists:
        existing: Mapping[str, Any] = await visit.ctx.client.get(NAMESPACE, name)
        return existing


def _refuse_foreign_namespace(namespace: Mapping[str, Any]) -> None:
    """Raise Refused for a namespace that was not created for builds.

    The credentials to push images are there: its people would read them.
    """
    name, labels = namespace["metadata"]["name"], namespace["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) != OPERATOR or OWNER_UID in labels:
        raise Refused(
            f"namespace {name} was not created for builds, so no credentials are copied there",
            reason="BuildNamespaceNotOurs",
            hint="Ask an administrator to set KAPSA_BUILD_NAMESPACE to another namespace. If no team has access to "
            f"this one, label it {MANAGED_BY}={OPERATOR}",
        )


def _is_reported(visit: StepRun, reason: str) -> bool:
    """Return whether the status already has this reason for this commit."""
    failure = visit.environment.status.failure
    return failure is not None and failure.reason == reason and visit.commit[:12] in failure.message


async def _log_tail(visit: StepRun, build: Manifest) -> str:
    """Return the end of the log of the pod that failed last."""
    namespace, client = visit.settings.build_namespace, visit.ctx.client
    selector = {"batch.kubernetes.io/job-name": build["metadata"]["name"]}
    if build["kind"] != "Job":
        selector = {"image.kpack.io/image": build["metadata"]["name"]}
    secrets = await _secret_texts(visit)
    try:
        pods = (await client.list("v1/Pod", namespace=namespace, label_selector=selector)).items
        for pod in sorted(pods, key=lambda each: each["metadata"]["creationTimestamp"], reverse=True):
            status = pod.get("status") or {}
            for container in [
                *(status.get("initContainerStatuses") or ()),
                *(status.get("containerStatuses") or ()),
            ]:
                if ((container.get("state") or {}).get("terminated") or {}).get("exitCode"):
                    text = await client.logs(
                        pod["metadata"]["name"],
                        namespace=namespace,
                        container=container["name"],
                        tail_lines=60,
                    )
                    return tail(text, secrets=secrets)
    except ClientError as error:
        visit.ctx.log.info("cannot read the log of the failed build", error=str(error))
    return ""


async def _secret_texts(visit: StepRun) -> tuple[str, ...]:
    credentials = (await _access(visit)).get("credentials")
    return credentials.secrets if credentials is not None else ()
