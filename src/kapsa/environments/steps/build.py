"""The build step: the image of exactly this commit is in the registry, and is known by its digest.

The registry is asked first, and only a clear "there is none" leads to a build: who cannot be asked has perhaps got it. A build
runs in a namespace of its own, outside the environment's quota. One for a commit that is no longer wanted is cancelled, and
since the image's tag says the commit, what it may have pushed is never taken for another.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from kapsa.environments.build.identity import build_digest, image_tag
from kapsa.environments.dependencies import BuildProgress, BuildRequest, Builds, Images
from kapsa.environments.image_reference import ImageReference
from kapsa.environments.names import MANAGED_BY, OPERATOR, OWNER, OWNER_UID, bounded
from kapsa.environments.namespaces import NAMESPACE
from kapsa.environments.outside import AuthFailed
from kapsa.environments.redaction import tail
from kapsa.environments.registry_credentials import RegistryCredentials
from kapsa.environments.repository_access import RepositoryAccess
from kapsa.environments.resources.environment import Phase
from kapsa.environments.steps.children import BUILD_KINDS, JOB, KPACK_IMAGE, kind_string, shown
from kapsa.environments.steps.step import Done, Failed, Manifest, Outcome, Visit, Waiting
from kapsa.runtime.errors import AlreadyExists, ClientError, Forbidden, Invalid, NotFound, UnknownKind

__all__ = ["BUILT_COMMIT", "BuildStep"]

BUILT_COMMIT = "catalyst.dev/commit"
"""A label of a build's objects: the commit that is built."""
_LOOK_AGAIN_SECONDS = 60.0
_KEPT = 10_000
_BECAME = {"succeeded": "succeeded", "running": "cancelled"}
"""What became of a build that is taken away; one that failed was counted when it did."""


class BuildStep:
    """Needs the commit and the Registry. Writes the objects of a build into the namespace of builds."""

    name: ClassVar[str] = "build"
    condition: ClassVar[str] = "BuildReady"
    phase: ClassVar[Phase] = "Building"

    def __init__(self, builds: Builds, images: Images, access: RepositoryAccess) -> None:
        self._builds = builds
        self._images = images
        self._access = access
        self._digests: dict[str, str] = {}

    async def run(self, visit: Visit) -> Outcome:
        wanted = visit.project.spec.registry
        if wanted is None:
            return self._without_registry(visit)
        if wanted.name is not None and visit.registry is None:
            return Failed(
                reason="RegistryMissing",
                message=f"there is no Registry {wanted.name}",
                object=f"Registry {wanted.name}",
                hint="Create it, or name another in registry.name of the project.",
                after=None,
            )
        image = _image(visit)
        await self._cancel(visit, but=visit.commit)
        running = self._running(visit)
        if running is not None:
            return running
        digest = await self._digest(visit, image)
        if digest is not None:
            visit.image = image.with_digest(digest).pinned
            await self._cancel(visit, but="")
            return Done(visit.image, reason="ImageReady")
        return await self._build(visit, image)

    def _without_registry(self, visit: Visit) -> Outcome:
        if visit.project.spec.deployment.type == "image":
            return Failed(
                reason="NoImage",
                message="the project deploys an image and does not say which",
                hint="Set registry.imageRepository of the project.",
                after=None,
            )
        return Done("what is deployed names its own image", reason="NotRequested")

    def _running(self, visit: Visit) -> Waiting | None:
        """Whether its build is under way: then the registry has nothing to say yet, and is not asked at each of its events."""
        for kind in (JOB, KPACK_IMAGE):
            found = visit.ctx.get(kind, _name(visit), namespace=visit.settings.build_namespace)
            if found is not None:
                progress = self._builds.progress(found)
                if progress.state == "running":
                    return _building(visit, found, progress)
        return None

    # -- is it there? ------------------------------------------------------------------------------------------

    async def _digest(self, visit: Visit, image: ImageReference) -> str | None:
        known = self._digests.get(str(image))
        if known is not None:
            return known
        registry = visit.registry
        digest = await self._images.digest(
            image,
            endpoint=registry.spec.endpoint if registry is not None else "",
            credentials=await _credentials(visit),
            insecure=registry.spec.insecure if registry is not None else False,
        )
        if digest is not None:
            if len(self._digests) >= _KEPT:
                self._digests.clear()
            self._digests[str(image)] = digest
        return digest

    # -- the build ---------------------------------------------------------------------------------------------

    async def _build(self, visit: Visit, image: ImageReference) -> Outcome:
        build = visit.project.spec.build
        if build is None or build.strategy == "none":
            return Waiting(
                message=f"there is no image {image} yet, and the project has no build",
                reason="ImageMissing",
                after=_LOOK_AGAIN_SECONDS,
            )
        if not visit.trusted:
            return Waiting(
                message=f"commit {visit.commit} comes from a fork: it is built once it is approved",
                reason="ApprovalRequired",
            )
        request = await self._request(visit, image)
        objects = [_marked(visit, each) for each in self._builds.objects(request)]
        found = visit.ctx.get(
            kind_string(objects[-1]), objects[-1]["metadata"]["name"], namespace=request.namespace
        )
        if found is None:
            return await self._start(visit, objects)
        return await self._judge(visit, found, image)

    async def _request(self, visit: Visit, image: ImageReference) -> BuildRequest:
        registry = visit.registry
        return BuildRequest(
            name=_name(visit),
            namespace=visit.settings.build_namespace,
            environment=visit.environment,
            project=visit.project,
            commit=visit.commit,
            image=image,
            insecure=registry.spec.insecure if registry is not None else False,
            source=await self._access.credentials(visit.ctx, visit.project, visit.interests),
            push=await _credentials(visit),
        )

    async def _start(self, visit: Visit, objects: list[Manifest]) -> Outcome:
        await _ensure_namespace(visit)
        for each in objects:
            try:
                await visit.ctx.apply(each, owner=False)
            except UnknownKind as error:
                return Failed(
                    reason="BuilderMissing",
                    message=str(error),
                    object=shown(each),
                    hint="Have an administrator install kpack, or choose another build.strategy for the project.",
                )
            except (Invalid, Forbidden) as error:
                return Failed(
                    reason="BuildRejected",
                    message=f"{shown(each)} was not accepted: {error}",
                    object=shown(each),
                    hint="Look at build of the project, and at the rules of the namespace of builds.",
                )
        engine = self._builds.engine(visit.project)
        visit.metrics.builds.labels(engine, "started").inc()
        await visit.ctx.event("Normal", "BuildStarted", f"{engine} builds commit {visit.commit[:12]}")
        return Waiting(message=f"{shown(objects[-1])} builds commit {visit.commit[:12]}", reason="Building")

    async def _judge(self, visit: Visit, found: Manifest, image: ImageReference) -> Outcome:
        progress = self._builds.progress(found)
        engine = self._builds.engine(visit.project)
        if progress.state == "running":
            return _building(visit, found, progress)
        if progress.state == "succeeded":
            # The registry was asked before: some show what was pushed a moment later.
            return Waiting(
                message=f"{shown(found)} is done, but the registry does not show {image} yet",
                reason="ImageNotPushed",
                after=_LOOK_AGAIN_SECONDS / 4,
            )
        if not _told(visit, "BuildFailed"):
            visit.metrics.builds.labels(engine, "failed").inc()
        return Failed(
            reason="BuildFailed",
            message=f"commit {visit.commit[:12]} could not be built: {progress.message}",
            object=shown(found),
            log_tail=await _log_tail(visit, found),
            hint=f"Push a commit that builds, or delete the {found['kind']} in {visit.settings.build_namespace} "
            "to have it tried again. The version before it is still served.",
            after=None,
        )

    async def _cancel(self, visit: Visit, *, but: str) -> None:
        """End the builds of this environment that are not for this commit."""
        place = visit.settings.build_namespace
        for kind in BUILD_KINDS:
            labels = f"{OWNER_UID}={visit.environment.metadata.uid},{BUILT_COMMIT}"
            for found in visit.ctx.list(kind, namespace=place, labels=labels):
                metadata = found["metadata"]
                if metadata["labels"][BUILT_COMMIT] == but or metadata.get("deletionTimestamp"):
                    continue
                gone = await visit.ctx.delete(kind, metadata["name"], namespace=place)
                if gone and kind in (JOB, KPACK_IMAGE):
                    became = _BECAME.get(self._builds.progress(found).state)
                    if became is not None:
                        visit.metrics.builds.labels(self._builds.engine(visit.project), became).inc()


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


async def _credentials(visit: Visit) -> RegistryCredentials | None:
    """Who we are to the registry.

    :raises AuthFailed: the Registry names a Secret that is not there, or holds none.
    """
    registry = visit.registry
    if registry is None or registry.spec.auth is None:
        return None
    reference = registry.spec.auth.secret_ref
    visit.interests.note(visit.ctx.key, "v1/Secret", reference.name, namespace=reference.namespace)
    try:
        secret: Any = await visit.ctx.client.get("v1/Secret", reference.name, namespace=reference.namespace)
    except NotFound:
        raise AuthFailed(
            f"there is no Secret {reference.name} in namespace {reference.namespace}, which Registry "
            f"{registry.name} names",
            hint="Have an administrator create it.",
            reason="CredentialsMissing",
        ) from None
    return RegistryCredentials.from_secret(secret, registry.spec.endpoint)


def _name(visit: Visit) -> str:
    """One name for one way to build one commit of one environment."""
    content = f"{visit.ctx.key}{build_digest(visit.project.spec.build)}"
    place = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{bounded(visit.environment.name.replace('.', '-'), 30)}-{place}-{visit.commit[:12]}"


def _marked(visit: Visit, manifest: Manifest) -> Manifest:
    metadata: dict[str, Any] = dict(manifest["metadata"])
    metadata["namespace"] = visit.settings.build_namespace
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        MANAGED_BY: OPERATOR,
        OWNER_UID: visit.environment.metadata.uid,
        BUILT_COMMIT: visit.commit[:63],
    }
    metadata["annotations"] = {**(metadata.get("annotations") or {}), OWNER: str(visit.ctx.key)}
    return {**manifest, "metadata": metadata}


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
    credentials = await _credentials(visit)
    return credentials.secrets if credentials is not None else ()
