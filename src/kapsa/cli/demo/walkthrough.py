"""The steps of the demo: what a team does with a project, and the results. Each step waits for its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kapsa.cli.demo.display import Display
from kapsa.cli.demo.push_hook import notify
from kapsa.cli.demo.services import REGISTRY, DemoServices
from kapsa.environments.resources import DomainPool, Environment, Project
from kapsa.runtime import NotFound

__all__ = ["DemoFailed", "Walkthrough"]

TEAM, PROJECT = "team", "shop"
PERMANENT, BRANCH = "production", "cart"
_SECONDS = 45.0
_POLL_SECONDS = 0.05
_BROKEN = "FROM nginx:1.29-alpine\nCOPY index.html /usr/share/nginx/html/\nRUN exit 1\n"


class DemoFailed(Exception):  # noqa: N818 - named as what happened
    """A step did not reach its result in time."""

    for_the_user = True


class Walkthrough:
    """One run of the demo."""

    def __init__(self, services: DemoServices, display: Display) -> None:
        self._services = services
        self._client = services.client
        self._display = display
        self._clone = services.clone

    async def run(self) -> None:
        """Run all steps but the last: the project exists, and its preview has come and gone."""
        await self._project()
        await self._preview()
        await self._update()
        await self._failed_build()
        await self._merge()

    # -- steps -------------------------------------------------------------------------------------------------

    async def _project(self) -> None:
        self._display.headline(
            f"A team creates Project {PROJECT}, whose environment {PERMANENT} follows main"
        )
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
        await self._client.create(namespace)
        await self._client.create(self._manifest())
        head = await self._clone.git("rev-parse", "HEAD")
        ready = await self._ready(PERMANENT, head)
        self._display.confirm(f"{PERMANENT} is ready at {ready.status.url}")

    async def _preview(self) -> None:
        self._display.headline(f"A developer pushes the new branch {BRANCH}")
        await self._clone.branch(BRANCH)
        commit = await self._push_page("A cart", BRANCH)
        ready = await self._ready(BRANCH, commit)
        self._display.confirm(f"it was built and deployed; the preview is ready at {ready.status.url}")
        namespace = ready.status.namespace
        assert namespace is not None
        policies = await self._client.list("networking.k8s.io/v1/NetworkPolicy", namespace=namespace.name)
        self._display.confirm(
            f"it has its own namespace {namespace.name}, with a quota and {len(policies.items)} network policies"
        )

    async def _update(self) -> None:
        self._display.headline(f"The developer pushes to {BRANCH} again")
        before = self._display.environments[BRANCH].status
        commit = await self._push_page("A better cart", BRANCH)
        ready = await self._ready(BRANCH, commit)
        if ready.status.image == before.image or ready.status.url != before.url:
            raise DemoFailed(
                f"the update of {BRANCH} still runs image {before.image}, or its URL changed from {before.url} to {ready.status.url}"
            )
        self._display.confirm("the preview runs the new commit, at the same URL")

    async def _failed_build(self) -> None:
        self._display.headline("The developer pushes a Dockerfile that does not build")
        before = self._display.environments[BRANCH].status
        commit = await self._push({"Dockerfile": _BROKEN}, BRANCH, "Break the build")
        failed = await self._until(f"{BRANCH} to report the failed build", self._has_failed(BRANCH, commit))
        failure = failed.status.failure
        self._display.confirm(failure.message)
        self._display.confirm(f"the build log ends with: {failure.log_tail.strip().splitlines()[-1]}")
        assert before.image is not None
        assert before.commit_sha is not None
        namespace = failed.status.namespace.name
        web = await self._client.get("apps/v1/Deployment", "web", namespace=namespace)
        running = web["spec"]["template"]["spec"]["containers"][0]["image"]
        if not running.endswith(before.image.rpartition("@")[2]) or not web["status"].get("readyReplicas"):
            raise DemoFailed(f"the failed build stopped the previous version: {running}")
        self._display.confirm(f"the previous commit {before.commit_sha[:7]} keeps running")

    async def _merge(self) -> None:
        self._display.headline(f"Branch {BRANCH} is merged into main and deleted")
        namespace = self._display.environments[BRANCH].status.namespace
        assert namespace is not None
        await self._clone.git("switch", "--quiet", "main")
        commit = await self._push_page("A cart for everybody", "main", delete=BRANCH)
        await self._until(f"the operator to miss branch {BRANCH}", self._is_missing)
        self._display.confirm(
            f"branch {BRANCH} is missing from the repository; the operator checks a second time before it deletes anything"
        )
        # A second webhook, rather than waiting for the next poll.
        await asyncio.to_thread(
            notify, self._services.webhook, self._services.repository.url, self._services.secret
        )
        await self._ready(PERMANENT, commit)
        self._display.confirm(f"{PERMANENT} was updated to {commit[:7]}")
        await self._until(
            f"preview {BRANCH} and namespace {namespace.name} to be deleted",
            self._is_gone(BRANCH, namespace.name),
        )
        self._display.confirm(f"preview {BRANCH} is deleted, with namespace {namespace.name} and its host")

    async def clean_up(self) -> None:
        """Delete the project, and wait until all its objects are gone."""
        self._display.headline(f"The team deletes Project {PROJECT}")
        await self._client.delete(Project, PROJECT, namespace=TEAM)
        await self._until("the objects of the project to be deleted", self._nothing_left)
        self._display.confirm("its environments, their namespaces and their hosts are deleted")

    def show_instructions(self, kubeconfig: Path) -> None:
        """Print what to try while the demo keeps running."""
        clone = self._clone.directory
        self._display.headline("The demo keeps running. Try it yourself in another terminal:")
        self._display.show(
            f"\n  export KUBECONFIG={kubeconfig}\n"
            "  kubectl get env -A                  # kubectl missing? kapsa tools install kubectl\n"
            f"  kubectl get proj,env,deploy,ing -A\n\n"
            f"  cd {clone}\n"
            "  git switch -c idea main\n"
            "  git commit --allow-empty -m 'Try something'\n"
            "  git push origin idea                # a preview appears\n\n"
            "A Dockerfile with the line `RUN false` does not build. Press Ctrl-C to stop and remove everything.\n"
        )

    # -- actions -----------------------------------------------------------------------------------------------

    async def _push_page(self, title: str, branch: str, *, delete: str = "") -> str:
        page = f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n"
        return await self._push({"index.html": page}, branch, title, delete=delete)

    async def _push(self, files: dict[str, str], branch: str, message: str, *, delete: str = "") -> str:
        commit = await self._clone.push(branch, files, message=message, delete=delete)
        self._display.say(f"git push: {branch} is at {commit[:7]}, {message!r}")
        return commit

    def _manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": Project.api_version,
            "kind": Project.kind,
            "metadata": {"name": PROJECT, "namespace": TEAM},
            "spec": {
                "source": {"repositoryUrl": self._services.repository.url, "pollInterval": "60s"},
                "build": {"strategy": "dockerfile"},
                "registry": {"name": REGISTRY, "imageRepository": f"{TEAM}/{PROJECT}"},
                "deployment": {"type": "helm", "path": "chart"},
                "resources": {"defaultQuota": {"cpu": "4", "memory": "4Gi", "pods": 20}},
                "environments": [{"name": PERMANENT, "branch": "main", "autoSync": True}],
                "previewEnvironments": {"enabled": True, "branches": {"exclude": ["dependabot/*"]}},
            },
        }

    # -- waiting -----------------------------------------------------------------------------------------------

    async def _until(self, expected: str, look: Callable[[], Awaitable[Any]]) -> Any:
        deadline = time.monotonic() + _SECONDS
        while not (result := await look()):
            if time.monotonic() > deadline:
                raise DemoFailed(f"timed out after {_SECONDS:g} s waiting for {expected}{self._states()}")
            await asyncio.sleep(_POLL_SECONDS)
        return result

    def _states(self) -> str:
        """Return the states of the environments, for the message of a failed demo."""
        states = []
        for name, each in self._display.environments.items():
            failure = each.status.failure
            open_ = [f"{c.type}: {c.message}" for c in each.status.conditions if c.status != "True"]
            state = failure.message if failure is not None else "; ".join(open_[:1]) or each.status.phase
            states.append(f"{name}: {state}")
        return f" ({', '.join(states)})" if states else ""

    async def _ready(self, name: str, commit: str) -> Environment:
        async def look() -> Environment | None:
            environment = self._display.environments.get(name)
            if environment is None or environment.status.commit_sha != commit:
                return None
            return environment if environment.status.phase == "Ready" else None

        ready: Environment = await self._until(f"{name} to be ready with commit {commit[:7]}", look)
        return ready

    def _has_failed(self, name: str, commit: str) -> Callable[[], Awaitable[Environment | None]]:
        async def look() -> Environment | None:
            environment = self._display.environments.get(name)
            if environment is None or environment.status.seen_commit != commit:
                return None
            return environment if environment.status.failure is not None else None

        return look

    async def _is_missing(self) -> bool:
        project = await self._client.get(Project, PROJECT, namespace=TEAM)
        return any(each.branch == BRANCH and each.missing for each in project.status.tracked)

    def _is_gone(self, name: str, namespace: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            if name in self._display.environments or await self._exists("v1/Namespace", namespace):
                return False
            return not any(each.endswith(f"/{name}") for each in await self._holders())

        return look

    async def _nothing_left(self) -> bool:
        namespaces = (await self._client.list("v1/Namespace")).items
        ours = [each for each in namespaces if each["metadata"]["name"].startswith(f"{TEAM}-")]
        return not ours and not await self._holders() and not (await self._client.list(Project)).items

    async def _holders(self) -> list[str]:
        """Return the environments that hold a host."""
        pools = (await self._client.list(DomainPool)).items
        return [each.environment for pool in pools for each in pool.status.allocations]

    async def _exists(self, kind: str, name: str) -> bool:
        try:
            await self._client.get(kind, name)
        except NotFound:
            return False
        return True
