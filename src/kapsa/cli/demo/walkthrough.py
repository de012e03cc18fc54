"""The story: what a team does in the life of a project, and what comes of it. Each step waits until it has come about."""

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
_LOOK_EVERY = 0.05
_BROKEN = "FROM nginx:1.29-alpine\nCOPY index.html /usr/share/nginx/html/\nRUN exit 1\n"


class DemoFailed(Exception):  # noqa: N818 - named as what happened
    """Something did not come about in its time."""

    for_the_user = True


class Walkthrough:
    """One run of it."""

    def __init__(self, stage: DemoServices, screen: Display) -> None:
        self._stage = stage
        self._client = stage.client
        self._screen = screen
        self._developer = stage.developer

    async def tell(self) -> None:
        """Everything up to a project whose previews have come and gone."""
        await self._project()
        await self._preview()
        await self._update()
        await self._failed_build()
        await self._merge()

    # -- chapters ----------------------------------------------------------------------------------------------

    async def _project(self) -> None:
        self._screen.headline(f"A team creates Project {PROJECT}; {PERMANENT} is to follow main")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
        await self._client.create(namespace)
        await self._client.create(self._manifest())
        head = await self._developer.git("rev-parse", "HEAD")
        ready = await self._ready(PERMANENT, head)
        self._screen.happened(f"{PERMANENT} serves at {ready.status.url}")

    async def _preview(self) -> None:
        self._screen.headline(f"A developer pushes a new branch, {BRANCH}")
        await self._developer.branch(BRANCH)
        commit = await self._push_page("A cart", BRANCH)
        ready = await self._ready(BRANCH, commit)
        self._screen.happened(f"it was built and deployed; the preview serves at {ready.status.url}")
        place = ready.status.namespace
        assert place is not None
        policies = await self._client.list("networking.k8s.io/v1/NetworkPolicy", namespace=place.name)
        self._screen.happened(
            f"it has namespace {place.name} for itself, with a quota and {len(policies.items)} network policies"
        )

    async def _update(self) -> None:
        self._screen.headline(f"They push to {BRANCH} again")
        before = self._screen.environments[BRANCH].status
        commit = await self._push_page("A better cart", BRANCH)
        ready = await self._ready(BRANCH, commit)
        if ready.status.image == before.image or ready.status.url != before.url:
            raise DemoFailed(
                f"the update of {BRANCH} kept image {before.image}, or moved from {before.url} to {ready.status.url}"
            )
        self._screen.happened("the preview shows the new commit, at the same address")

    async def _failed_build(self) -> None:
        self._screen.headline("They push a Dockerfile that does not build")
        before = self._screen.environments[BRANCH].status
        commit = await self._push({"Dockerfile": _BROKEN}, BRANCH, "Break the build")
        failed = await self._until(f"{BRANCH} says that the build failed", self._has_failed(BRANCH, commit))
        failure = failed.status.failure
        self._screen.happened(failure.message)
        self._screen.happened(f"its log ends with: {failure.log_tail.strip().splitlines()[-1]}")
        assert before.image is not None
        assert before.commit_sha is not None
        place = failed.status.namespace.name
        web = await self._client.get("apps/v1/Deployment", "web", namespace=place)
        running = web["spec"]["template"]["spec"]["containers"][0]["image"]
        if not running.endswith(before.image.rpartition("@")[2]) or not web["status"].get("readyReplicas"):
            raise DemoFailed(f"the failed build took down what served before it: {running}")
        self._screen.happened(f"what served before, {before.commit_sha[:7]}, goes on serving")

    async def _merge(self) -> None:
        self._screen.headline(f"The cart is merged into main, and branch {BRANCH} is deleted")
        place = self._screen.environments[BRANCH].status.namespace
        assert place is not None
        await self._developer.git("switch", "--quiet", "main")
        commit = await self._push_page("A cart for everybody", "main", delete=BRANCH)
        await self._until(f"a listing of the repository lacks {BRANCH}", self._is_missed)
        self._screen.happened(f"a look at the repository finds no {BRANCH}: a second one must agree")
        # What a person who cannot wait for the next poll would do.
        await asyncio.to_thread(notify, self._stage.webhook, self._stage.repository.url, self._stage.secret)
        await self._ready(PERMANENT, commit)
        self._screen.happened(f"{PERMANENT} followed main to {commit[:7]}")
        await self._until(
            f"preview {BRANCH} and namespace {place.name} are gone", self._is_gone(BRANCH, place.name)
        )
        self._screen.happened(f"preview {BRANCH} is gone, with namespace {place.name} and its host")

    async def end(self) -> None:
        """Delete the project, and wait until nothing of it is left."""
        self._screen.headline(f"The team deletes Project {PROJECT}")
        await self._client.delete(Project, PROJECT, namespace=TEAM)
        await self._until("nothing of the project is left", self._nothing_left)
        self._screen.happened("its environments, their namespaces and their hosts are gone")

    def invite(self, kubeconfig: Path) -> None:
        """Leave it to the reader."""
        clone = self._developer.clone
        self._screen.headline("It goes on running. Now it is your turn, in another terminal:")
        self._screen.show(
            f"\n  export KUBECONFIG={kubeconfig}\n"
            "  kubectl get env -A                  # kubectl missing? kapsa tools install kubectl\n"
            f"  kubectl get proj,env,deploy,ing -A\n\n"
            f"  cd {clone}\n"
            "  git switch -c idea main\n"
            "  git commit --allow-empty -m 'Try something'\n"
            "  git push origin idea                # a preview appears\n\n"
            "A Dockerfile with the line `RUN false` does not build. Ctrl-C ends it and removes everything.\n"
        )

    # -- doing -------------------------------------------------------------------------------------------------

    async def _push_page(self, title: str, branch: str, *, delete: str = "") -> str:
        page = f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n"
        return await self._push({"index.html": page}, branch, title, delete=delete)

    async def _push(self, files: dict[str, str], branch: str, message: str, *, delete: str = "") -> str:
        commit = await self._developer.push(branch, files, message=message, delete=delete)
        self._screen.say(f"git push: {branch} is at {commit[:7]}, {message!r}")
        return commit

    def _manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": Project.api_version,
            "kind": Project.kind,
            "metadata": {"name": PROJECT, "namespace": TEAM},
            "spec": {
                "source": {"repositoryUrl": self._stage.repository.url, "pollInterval": "60s"},
                "build": {"strategy": "dockerfile"},
                "registry": {"name": REGISTRY, "imageRepository": f"{TEAM}/{PROJECT}"},
                "deployment": {"type": "helm", "path": "chart"},
                "resources": {"defaultQuota": {"cpu": "4", "memory": "4Gi", "pods": 20}},
                "environments": [{"name": PERMANENT, "branch": "main", "autoSync": True}],
                "previewEnvironments": {"enabled": True, "branches": {"exclude": ["dependabot/*"]}},
            },
        }

    # -- looking -----------------------------------------------------------------------------------------------

    async def _until(self, what: str, look: Callable[[], Awaitable[Any]]) -> Any:
        deadline = time.monotonic() + _SECONDS
        while not (found := await look()):
            if time.monotonic() > deadline:
                raise DemoFailed(f"it did not come about in {_SECONDS:g} s that {what}{self._why()}")
            await asyncio.sleep(_LOOK_EVERY)
        return found

    def _why(self) -> str:
        """What the environments themselves say, for whoever reads that something did not come about."""
        told = []
        for name, each in self._screen.environments.items():
            failure = each.status.failure
            open_ = [f"{c.type}: {c.message}" for c in each.status.conditions if c.status != "True"]
            says = failure.message if failure is not None else "; ".join(open_[:1]) or each.status.phase
            told.append(f"{name} says {says!r}")
        return f" ({', '.join(told)})" if told else ""

    async def _ready(self, name: str, commit: str) -> Environment:
        async def look() -> Environment | None:
            found = self._screen.environments.get(name)
            if found is None or found.status.commit_sha != commit or found.status.phase != "Ready":
                return None
            return found

        ready: Environment = await self._until(f"{name} is ready with commit {commit[:7]}", look)
        return ready

    def _has_failed(self, name: str, commit: str) -> Callable[[], Awaitable[Environment | None]]:
        async def look() -> Environment | None:
            found = self._screen.environments.get(name)
            fits = found is not None and found.status.seen_commit == commit
            return found if fits and found is not None and found.status.failure is not None else None

        return look

    async def _is_missed(self) -> bool:
        project = await self._client.get(Project, PROJECT, namespace=TEAM)
        return any(each.branch == BRANCH and each.missing for each in project.status.tracked)

    def _is_gone(self, name: str, namespace: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            if name in self._screen.environments or await self._exists("v1/Namespace", namespace):
                return False
            return not any(each.endswith(f"/{name}") for each in await self._holders())

        return look

    async def _nothing_left(self) -> bool:
        namespaces = (await self._client.list("v1/Namespace")).items
        ours = [each for each in namespaces if each["metadata"]["name"].startswith(f"{TEAM}-")]
        return not ours and not await self._holders() and not (await self._client.list(Project)).items

    async def _holders(self) -> list[str]:
        """The environments that hold a host."""
        pools = (await self._client.list(DomainPool)).items
        return [each.environment for pool in pools for each in pool.status.allocations]

    async def _exists(self, kind: str, name: str) -> bool:
        try:
            await self._client.get(kind, name)
        except NotFound:
            return False
        return True
