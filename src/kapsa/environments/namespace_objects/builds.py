"""The builds that environments own: one build per image, shared by every environment that needs it.

The environment that starts a build owns it; others that need the same image wait for it. When the owner no
longer needs the build, ownership moves to another environment that does. If there is none, the build is
deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kapsa.environments.build.amounts import has_used_its_share
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import LABEL_LIMIT, MANAGED_BY, OPERATOR, OWNER, OWNER_UID, TEAM, label_value
from kapsa.environments.namespace_objects.children import BUILD_KINDS, JOB, KPACK_IMAGE
from kapsa.environments.ports import Builds
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.tenancy.namespaces import ChildMapping
from kapsa.runtime import Cache, Context, Key, StoredObject

__all__ = [
    "BUILD",
    "BUILT_COMMIT",
    "COMMIT_INDEX",
    "BuildMapping",
    "EnvironmentBuilds",
    "commits_of",
    "engine_of",
]

BUILD = "catalyst.dev/build"
"""A label of a build's objects: the name of the build, which identifies the image it produces."""
BUILT_COMMIT = "catalyst.dev/commit"
"""A label of a build's objects: the commit it builds."""
ENGINE = "catalyst.dev/build-engine"
"""A label of a build's objects: the engine that was chosen when the build started."""
COMMIT_INDEX = "commit"
"""The index of Environments by their namespace and the commit they have or ask for."""
_RESULTS = {"succeeded": "succeeded", "running": "cancelled", "expired": "cancelled"}
"""The result to count for a deleted build, by its state; a failed one was counted when it failed."""


def commits_of(stored: StoredObject) -> Iterable[tuple[str, str]]:
    """Return the index keys of an Environment: its requested commit, and the resolved one."""
    environment = Environment.decode(stored.raw)
    commits = {environment.spec.source.commit_sha.lower(), environment.status.seen_commit}
    return [(stored.namespace, _as_label(commit)) for commit in commits if commit]


class BuildMapping:
    """A mapping of a build to the environment that owns it and all that may wait for it. For a Watch."""

    def __init__(self, children: ChildMapping) -> None:
        self._children = children

    def __call__(self, build: StoredObject, cache: Cache) -> Iterable[Key]:
        concerned = list(self._children(build, cache))
        commit = build.labels.get(BUILT_COMMIT)
        for namespace, _ in tuple(concerned) if commit else ():
            concerned += [each.key for each in cache.by_index(Environment, COMMIT_INDEX, (namespace, commit))]
        return concerned


def engine_of(build: Manifest) -> str:
    """Return the engine of a build."""
    engine: str = build["metadata"]["labels"].get(ENGINE, "")
    return engine


class EnvironmentBuilds:
    """The builds that an environment owns, in the build namespace."""

    def __init__(self, builds: Builds, settings: Settings, metrics: EnvironmentMetrics) -> None:
        self._builds = builds
        self._namespace = settings.build_namespace
        self._metrics = metrics

    def marked(self, visit: StepRun, build: str, manifest: Manifest) -> Manifest:
        """Return an object of a build with the marks of its owner."""
        metadata: dict[str, Any] = dict(manifest["metadata"])
        metadata["namespace"] = self._namespace
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            MANAGED_BY: OPERATOR,
            OWNER_UID: visit.environment.metadata.uid,
            TEAM: label_value(visit.project.namespace),
            BUILD: build,
            BUILT_COMMIT: _as_label(visit.commit),
            ENGINE: self._builds.engine(visit.project),
        }
        metadata["annotations"] = {**(metadata.get("annotations") or {}), OWNER: str(visit.ctx.key)}
        return {**manifest, "metadata": metadata}

    def is_queued(self, visit: StepRun) -> bool:
        """Return whether the team has used its share of the quota, so that a further build has to wait."""
        running: dict[str, list[Manifest]] = {}
        for kind in (JOB, KPACK_IMAGE):
            for each in visit.ctx.list(kind, namespace=self._namespace, labels=f"{BUILD},{TEAM}"):
                if self._builds.progress(each).state == "running":
                    running.setdefault(each["metadata"]["labels"][TEAM], []).append(each)
        own = running.pop(label_value(visit.project.namespace), [])
        return has_used_its_share(visit.settings, own, alone=not running)

    async def delete_all(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Delete all builds of the environment: their image exists, or the environment may not have it built."""
        for kind, build in self._owned(environment, ctx):
            await self._delete(kind, build, ctx)

    async def delete(self, build: str, ctx: Context[Environment]) -> None:
        """Delete a build that environments of one project share, whichever of them owns it."""
        for kind in BUILD_KINDS:
            for each in ctx.list(kind, namespace=self._namespace, labels={BUILD: build}):
                await self._delete(kind, each, ctx)

    async def release(
        self, environment: Environment, ctx: Context[Environment], *, build: str = "", commit: str = ""
    ) -> None:
        """Release the environment's builds, except the one named `build`, which it needs.

        A build that another environment needs is handed over; any other is deleted. `commit` is the commit
        that the needed build is for: a different build of the same commit is obsolete.
        """
        for kind, manifest in self._owned(environment, ctx):
            labels = manifest["metadata"]["labels"]
            if labels[BUILD] == build:
                continue
            built = labels[BUILT_COMMIT]
            heir = _heir(environment, ctx, built) if built != _as_label(commit) else None
            if heir is None:
                await self._delete(kind, manifest, ctx)
            else:
                await self._transfer(kind, manifest, heir, ctx)

    def _owned(
        self, environment: Environment, ctx: Context[Environment]
    ) -> Sequence[tuple[str, dict[str, Any]]]:
        labels = f"{OWNER_UID}={environment.metadata.uid},{BUILD}"
        return [
            (kind, build)
            for kind in BUILD_KINDS
            for build in ctx.list(kind, namespace=self._namespace, labels=labels)
            if not build["metadata"].get("deletionTimestamp")
        ]

    async def _delete(self, kind: str, build: Manifest, ctx: Context[Environment]) -> None:
        gone = await ctx.delete(kind, build["metadata"]["name"], namespace=self._namespace)
        if gone and kind in (JOB, KPACK_IMAGE):
            result = _RESULTS.get(self._builds.progress(build).state)
            if result is not None:
                self._metrics.builds.labels(engine_of(build), result).inc()

    async def _transfer(
        self, kind: str, build: Manifest, heir: Environment, ctx: Context[Environment]
    ) -> None:
        metadata = {
            "uid": build["metadata"]["uid"],
            "labels": {OWNER_UID: heir.metadata.uid},
            "annotations": {OWNER: str(heir.metadata)},
        }
        await ctx.patch(kind, build["metadata"]["name"], {"metadata": metadata}, namespace=self._namespace)


def _as_label(commit: str) -> str:
    """Return the commit cut to the length of a label: a SHA-256 name is one digit longer."""
    return commit[:LABEL_LIMIT]


def _heir(environment: Environment, ctx: Context[Environment], commit: str) -> Environment | None:
    """Return another environment of the same project that requests this commit."""
    for each in ctx.find(Environment, COMMIT_INDEX, (environment.namespace, commit)):
        requested = each.spec.source.commit_sha.removesuffix("...").lower()
        if (
            each.metadata.uid != environment.metadata.uid
            and not each.metadata.deleting
            and commit.startswith(_as_label(requested))
        ):
            return each
    return None
