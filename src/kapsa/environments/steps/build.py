"""The build step: the image of exactly this commit is in the registry, and is known by its digest.

The registry is asked first, and only a clear "there is none" leads to a build: who cannot be asked has perhaps got it. A build
runs in a namespace of its own, outside the environment's quota, and is there once for all environments that want its image.
One for a commit that nobody wants any more is cancelled, and since the image's tag says the commit, what it may have pushed
is never taken for another.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import ClassVar

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import DigestCache, RegistryAccess
from kapsa.adapters.redaction import tail
from kapsa.environments.build.identity import build_name, image_tag
from kapsa.environments.images.registry_access import access_to
from kapsa.environments.images.retention import remember_image
from kapsa.environments.names import APPROVED_COMMIT, MANAGED_BY, OPERATOR, OWNER_UID
from kapsa.environments.objects.builds import EnvironmentBuilds, engine_of
from kapsa.environments.objects.children import JOB, KPACK_IMAGE, shown
from kapsa.environments.ports import BuildProgress, BuildRequest, Builds
from kapsa.environments.resources.environment import Phase
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.environments.tenancy.namespaces import NAMESPACE
from kapsa.environments.visit import Manifest, Visit
from kapsa.runtime import AlreadyExists, ClientError, Forbidden, Invalid, UnknownKind

__all__ = ["BuildStep"]

_LOOK_AGAIN_SECONDS = 60.0


class BuildStep:
    """Needs the commit and the Registry. Writes the objects of a build into the namespace of builds."""

    name: ClassVar[str] = "build"
    condition: ClassVar[str] = "BuildReady"
    phase: ClassVar[Phase] = "Building"

    def __init__(
        self, builds: Builds, images: DigestCache, access: RepositoryAccess, begun: EnvironmentBuilds
    ) -> None:
        self._builds = builds
        self._images = images
        self._access = access
        self._begun = begun
        self._starting: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def run(self, visit: Visit) -> Outcome:
        wanted = visit.project.spec.registry
        if wanted is None:
            return self._without_registry(visit)
        if wanted.name is not None and visit.registry is None:
            return StepFailure(
                reason="RegistryMissing",
                message=f"there is no Registry {wanted.name}",
                object=f"Registry {wanted.name}",
                hint="Create it, or name another in registry.name of the project.",
                after=None,
            )
        image = _image(visit)
        name = build_name(visit.project, visit.commit, image)
        await self._begun.let_go(visit.environment, visit.ctx, build=name, commit=visit.commit)
        found = _find(visit, name)
        if found is not None and (progress := self._builds.progress(found)).state == "running":
            # The registry has nothing to say yet, and is not asked at each event of the build.
            return _building(visit, found, progress)
        digest = self._images.cached(image) or await self._images.digest(image, **await _access(visit))
        if digest is not None:
            visit.image = image.with_digest(digest).pinned
            remember_image(visit.ctx, visit.image, visit.registry)
            await self._begun.end(visit.environment, visit.ctx)
            return Done(visit.image, reason="ImageReady")
        return await self._build(visit, image, name)

    def _without_registry(self, visit: Visit) -> Outcome:
        if visit.project.spec.deployment.type == "image":
            return StepFailure(
                reason="NoImage",
                message="the project deploys an image and does not say which",
                hint="Set registry.imageRepository of the project.",
                after=None,
            )
        return Done("what is deployed names its own image", reason="NotRequested")

    # -- the build ---------------------------------------------------------------------------------------------

    async def _build(self, visit: Visit, image: ImageReference, name: str) -> Outcome:
        build = visit.project.spec.build
        if build is None or build.strategy == "none":
            return Waiting(
                message=f"there is no image {image} yet, and the project has no build",
                reason="ImageMissing",
                after=_LOOK_AGAIN_SECONDS,
            )
        if not visit.trusted:
            return Waiting(
                message=f"commit {visit.commit} comes from a fork: it is built once the environment's annotation "
                f"{APPROVED_COMMIT} has that value",
                reason="ApprovalRequired",
            )
        # Two that want the same image may be here at a time, and one of them begins.
        async with self._starting.setdefault(name, asyncio.Lock()):
            found = _find(visit, name)
            if found is None:
                return await self._start(visit, await self._objects(visit, image, name))
        return await self._judge(visit, found, image)

    async def _objects(self, visit: Visit, image: ImageReference, name: str) -> list[Manifest]:
        access = await _access(visit)
        request = BuildRequest(
            name=name,
            namespace=visit.settings.build_namespace,
            project=visit.project,
            commit=visit.commit,
            image=image,
            insecure=access.get("insecure", False),
            source=await self._access.credentials(visit.ctx, visit.project, visit.interests),
            push=access.get("credentials"),
        )
        return [self._begun.marked(visit, name, each) for each in self._builds.objects(request)]

    async def _start(self, visit: Visit, objects: list[Manifest]) -> Outcome:
        await _ensure_namespace(visit)
        for each in objects:
            try:
                await visit.ctx.apply(each, owner=False)
            except UnknownKind as error:
                return StepFailure(
                    reason="BuilderMissing",
                    message=str(error),
                    object=shown(each),
                    hint="Have an administrator install kpack, or choose another build.strategy for the project.",
                )
            except (Invalid, Forbidden) as error:
                return StepFailure(
                    reason="BuildRejected",
                    message=f"{shown(each)} was not accepted: {error}",
                    object=shown(each),
                    hint="Look at build of the project, and at the rules of the namespace of builds.",
                )
        engine = engine_of(objects[-1])
        visit.metrics.builds.labels(engine, "started").inc()
        visit.ctx.event("Normal", "BuildStarted", f"{engine} builds commit {visit.commit[:12]}")
        return Waiting(message=f"{shown(objects[-1])} builds commit {visit.commit[:12]}", reason="Building")

    async def _judge(self, visit: Visit, found: Manifest, image: ImageReference) -> Outcome:
        progress = self._builds.progress(found)
        if progress.state == "running":
            return _building(visit, found, progress)
        if progress.state == "succeeded":
            # The registry was asked before: some show what was pushed a moment later.
            return Waiting(
                message=f"{shown(found)} is done, but the registry does not show {image} yet",
                reason="ImageNotPushed",
                after=_LOOK_AGAIN_SECONDS / 4,
            )
        own = found["metadata"]["labels"].get(OWNER_UID) == visit.environment.metadata.uid
        if own and not _told(visit, "BuildFailed"):
            visit.metrics.builds.labels(engine_of(found), "failed").inc()
        return StepFailure(
            reason="BuildFailed",
            message=f"commit {visit.commit[:12]} could not be built: {progress.message}",
            object=shown(found),
            log_tail=await _log_tail(visit, found),
            hint=f"Push a commit that builds, or delete the {found['kind']} in {visit.settings.build_namespace} "
            "to have it tried again. The version before it is still served.",
            after=None,
        )


def _find(visit: Visit, name: str) -> Manifest | None:
    """The build of this name, whoever began it."""
    for kind in (JOB, KPACK_IMAGE):
        found = visit.ctx.get(kind, name, namespace=visit.settings.build_namespace)
        if found is not None:
            return found
    return None


def _building(visit: Visit, build: Manifest, progress: BuildProgress) -> Waiting:
    words = f"{shown(build)} builds commit {visit.commit[:12]} {progress.message}".rstrip()
    return Waiting(message=words, reason="Building")


def _image(visit: Visit) -> ImageReference:
    """The image of this commit, in the project's Registry if it names one.

    :raises Refused: the repository is in another registry, which would be sent the credentials of this one.
    """
    assert visit.project.spec.registry is not None
    repository = visit.project.spec.registry.image_repository
    found = (
        ImageReference.within(visit.registry.spec.endpoint, repository)
        if visit.registry is not None
        else ImageReference.parse(repository)
    )
    return found.with_tag(image_tag(visit.project, visit.commit))


async def _access(visit: Visit) -> RegistryAccess:
    """How the registry is asked: again when the Secret with its credentials has changed.

    :raises AuthFailed: the Registry names a Secret that is not there, or holds none.
    """
    registry = visit.registry
    if registry is not None and registry.spec.auth is not None:
        reference = registry.spec.auth.secret_ref
        visit.interests.note(visit.ctx.key, "v1/Secret", reference.name, namespace=reference.namespace)
    return await access_to(registry, visit.ctx.client)


async def _ensure_namespace(visit: Visit) -> None:
    name = visit.settings.build_namespace
    if visit.ctx.get(NAMESPACE, name, namespace="") is not None:
        return
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MANAGED_BY: OPERATOR}},
    }
    try:
        await visit.ctx.create(manifest, owner=False)
    except AlreadyExists:
        return


def _told(visit: Visit, reason: str) -> bool:
    """Whether the status says so already, of this commit."""
    failure = visit.environment.status.failure
    return failure is not None and failure.reason == reason and visit.commit[:12] in failure.message


async def _log_tail(visit: Visit, build: Manifest) -> str:
    """The end of the log of the pod that failed last."""
    place, client = visit.settings.build_namespace, visit.ctx.client
    selector = {"batch.kubernetes.io/job-name": build["metadata"]["name"]}
    if build["kind"] != "Job":
        selector = {"image.kpack.io/image": build["metadata"]["name"]}
    secrets = await _secret_texts(visit)
    try:
        pods = (await client.list("v1/Pod", namespace=place, label_selector=selector)).items
        for pod in sorted(pods, key=lambda each: each["metadata"]["creationTimestamp"], reverse=True):
            status = pod.get("status") or {}
            for container in [
                *(status.get("initContainerStatuses") or ()),
                *(status.get("containerStatuses") or ()),
            ]:
                if ((container.get("state") or {}).get("terminated") or {}).get("exitCode"):
                    text = await client.logs(
                        pod["metadata"]["name"],
                        namespace=place,
                        container=container["name"],
                        tail_lines=60,
                    )
                    return tail(text, secrets=secrets)
    except ClientError as error:
        visit.ctx.log.info("no log of the failed build", error=str(error))
    return ""


async def _secret_texts(visit: Visit) -> tuple[str, ...]:
    credentials = (await _access(visit)).get("credentials")
    return credentials.secrets if credentials is not None else ()
