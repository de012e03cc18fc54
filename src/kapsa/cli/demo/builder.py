"""Plays builds where nothing runs: pushes the image that a build Job is for, or has it fail as its Dockerfile says.

What a build would have found out is read off its Dockerfile: a line `RUN false` or `RUN exit 1` fails it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import msgspec

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.testing import RegistryServer
from kapsa.devcluster.workloads import Workloads
from kapsa.runtime import Bookmark, Client

__all__ = ["BuildPods", "Builder", "SimulatedPods"]

JOB = "batch/v1/Job"
_BUILD_POD = {"app.kubernetes.io/component": "build"}
_UNTIL_TOLD = 86_400.0
_FAILS = re.compile(r"^RUN\s+((?:false|exit\s+([1-9][0-9]*))\s*)$", re.MULTILINE)
_PUSHED = re.compile(r"--output=type=image,name=([^,]+),push=true")


class BuildPods(Protocol):
    """Whoever has the pods of builds in hand."""

    async def succeed(self, job: str) -> None:
        """The image is there: the pod of this Job may end."""
        ...

    async def fail(self, job: str, *, code: int, log: str) -> None:
        """The pod of this Job ends with this code, and with this at the end of its log."""
        ...


class SimulatedPods:
    """Those of an embedded cluster."""

    def __init__(self, workloads: Workloads, *, seconds: float = 1.0, one_by_one: bool = True) -> None:
        """
        :param seconds: how long a build takes.
        :param one_by_one: whether each pod is told when to end, so that none does before its image is there. With
            hundreds of builds that costs much: then all of them end after `seconds`, and none of them may fail.
        """
        self._workloads = workloads
        self._seconds = seconds
        self._one_by_one = one_by_one
        workloads.delay(_BUILD_POD, finish=_UNTIL_TOLD if one_by_one else seconds)

    async def succeed(self, job: str) -> None:
        if self._one_by_one:
            self._workloads.finish({"job-name": job}, after=self._seconds)

    async def fail(self, job: str, *, code: int, log: str) -> None:
        pod = {"job-name": job}
        self._workloads.logs(pod, log)
        self._workloads.crash(pod, exit_code=code, after=self._seconds, container="build")


class _Build(msgspec.Struct, frozen=True):
    """What a build Job asks for."""

    job: str
    commit: str
    dockerfile: str
    image: ImageReference

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> _Build:
        pod = job["spec"]["template"]["spec"]
        variables = {each["name"]: each.get("value", "") for each in pod["initContainers"][0]["env"]}
        pushed = _PUSHED.search(" ".join(pod["containers"][0]["args"]))
        assert (
            pushed is not None
        )  # BuildKit is what builds unless a project says otherwise, and none here does
        path = f"{variables['CONTEXT']}/{variables['DOCKERFILE']}".removeprefix("./")
        return cls(job["metadata"]["name"], variables["COMMIT"], path, ImageReference.parse(pushed[1]))


class Builder:
    """Follows the Jobs of one namespace."""

    def __init__(
        self,
        client: Client,
        pods: BuildPods,
        registry: RegistryServer,
        read: Callable[[str, str], str],
        *,
        namespace: str,
    ) -> None:
        """
        :param read: the content of a file of a commit: `read(commit, path)`.
        """
        self._client = client
        self._pods = pods
        self._registry = registry
        self._read = read
        self._namespace = namespace
        self._seen: set[str] = set()
        self.pushed: dict[str, str] = {}
        """The digests of what was built, by tag."""
        self.built: list[str] = []
        """The Jobs whose image was pushed, in order."""
        self.failed: list[str] = []
        """The Jobs that failed, in order."""

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Build for as long as the block runs."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:  # the server ends a watch now and then
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
    """The end of what BuildKit prints."""
    return (
        f"#8 [3/3] RUN {command}\n"
        f'#8 ERROR: process "/bin/sh -c {command}" did not complete successfully: exit code: {code}\n'
    )
