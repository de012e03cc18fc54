"""Simulated builds for clusters whose pods run no containers: each build Job gets its image pushed, or fails.

The Dockerfile decides: a line `RUN false` or `RUN exit 1` fails the build, anything else succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import msgspec

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.runtime import Bookmark, Client

__all__ = ["BuildPods", "SimulatedBuildPods", "SimulatedBuilds", "SimulatedPods"]

JOB = "batch/v1/Job"
_BUILD_POD = {"app.kubernetes.io/component": "build"}
_FOREVER = 86_400.0
_FAILS = re.compile(r"^RUN\s+((?:false|exit\s+([1-9][0-9]*))\s*)$", re.MULTILINE)


class SimulatedPods(Protocol):
    """The control that an embedded devcluster offers over its simulated pods: `DevCluster.workloads`."""

    def delay(self, selector: str | Mapping[str, str] | None = None, **seconds: float) -> None:
        """Set delays of all pods, or of the matching ones."""
        ...

    def finish(self, selector: str | Mapping[str, str], *, after: float = 0.0) -> None:
        """End the containers of matching pods with exit code 0."""
        ...

    def crash(
        self,
        selector: str | Mapping[str, str],
        *,
        exit_code: int = 1,
        after: float = 0.0,
        container: str = "",
    ) -> None:
        """End a container of matching pods with an error."""
        ...

    def logs(self, selector: str | Mapping[str, str], text: str) -> None:
        """Set the log of matching pods."""
        ...


class BuildPods(Protocol):
    """Control over the pods of build Jobs."""

    async def succeed(self, job: str) -> None:
        """Let the pod of this Job succeed. Its image has been pushed."""
        ...

    async def fail(self, job: str, *, code: int, log: str) -> None:
        """Let the pod of this Job fail with this exit code and this log."""
        ...


class SimulatedBuildPods:
    """The build pods of an embedded devcluster."""

    def __init__(self, workloads: SimulatedPods, *, seconds: float = 1.0, one_by_one: bool = True) -> None:
        """Let each build take `seconds`.

        With `one_by_one`, each pod ends only after its image is pushed. That is expensive with hundreds of
        builds: without it all pods succeed after `seconds`, and no build can fail.
        """
        self._workloads = workloads
        self._seconds = seconds
        self._one_by_one = one_by_one
        workloads.delay(_BUILD_POD, finish=_FOREVER if one_by_one else seconds)

    async def succeed(self, job: str) -> None:
        if self._one_by_one:
            self._workloads.finish({"job-name": job}, after=self._seconds)

    async def fail(self, job: str, *, code: int, log: str) -> None:
        pod = {"job-name": job}
        self._workloads.logs(pod, log)
        # Simulated pods have no init containers that fail, so the one that would push does.
        self._workloads.crash(pod, exit_code=code, after=self._seconds, container="push")


class _Build(msgspec.Struct, frozen=True):
    """The commit, Dockerfile and image of a build Job."""

    job: str
    commit: str
    dockerfile: str
    image: ImageReference

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> _Build:
        pod = job["spec"]["template"]["spec"]
        variables = {each["name"]: each.get("value", "") for each in pod["initContainers"][0]["env"]}
        command, _, pushed, *_ = pod["containers"][0]["args"]
        assert command == "push", "only builds of Dockerfiles are simulated"
        path = f"{variables['CONTEXT']}/{variables['DOCKERFILE']}".removeprefix("./")
        return cls(job["metadata"]["name"], variables["COMMIT"], path, ImageReference.parse(pushed))


class SimulatedBuilds:
    """A watch on the build Jobs of one namespace that completes each Job."""

    def __init__(
        self,
        client: Client,
        pods: BuildPods,
        registry: RegistryServer,
        read: Callable[[str, str], str],
        *,
        namespace: str,
    ) -> None:
        """Read Dockerfiles with `read(commit, path)` and push images to `registry`."""
        self._client = client
        self._pods = pods
        self._registry = registry
        self._read = read
        self._namespace = namespace
        self._seen: set[str] = set()
        self.pushed: dict[str, str] = {}
        """Digests of the images built, by tag."""
        self.built: list[str] = []
        """Names of the Jobs that succeeded, in order."""
        self.failed: list[str] = []
        """Names of the Jobs that failed, in order."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Simulate builds until the block ends."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:  # the server closes a watch from time to time
            async for event in self._client.watch(JOB, namespace=self._namespace, resource_version="0"):
                if not isinstance(event, Bookmark) and event.type != "DELETED":
                    await self._see(event.object)

    async def _see(self, job: Mapping[str, Any]) -> None:
        if job["metadata"]["uid"] in self._seen:
            return
        self._seen.add(job["metadata"]["uid"])
        build = _Build.of(job)
        dockerfile = await asyncio.to_thread(self._read, build.commit, build.dockerfile)
        failing = _FAILS.search(dockerfile)
        if failing is not None:
            code = int(failing[2] or 1)
            self.failed.append(build.job)
            await self._pods.fail(build.job, code=code, log=_failure_log(failing[1].strip(), code))
            return
        image = build.image
        self.pushed[image.tag] = self._registry.push(image.path, image.tag, content=build.commit.encode())
        self.built.append(build.job)
        await self._pods.succeed(build.job)


def _failure_log(command: str, code: int) -> str:
    """Return the last lines that BuildKit prints for a failed RUN."""
    return (
        f"#8 [3/3] RUN {command}\n"
        f'#8 ERROR: process "/bin/sh -c {command}" did not complete successfully: exit code: {code}\n'
    )
