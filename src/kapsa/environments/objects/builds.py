"""Builds that environments have begun: one for each image, whoever wants it.

The environment that began a build owns it, and the others that want the same image wait for it. When its owner no longer
wants it, it is handed on to one that does; it ends when there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import LABEL_LIMIT, MANAGED_BY, OPERATOR, OWNER, OWNER_UID
from kapsa.environments.objects.children import BUILD_KINDS, JOB, KPACK_IMAGE
from kapsa.environments.ports import Builds
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import owners
from kapsa.environments.visit import Manifest, Visit
from kapsa.runtime import Cache, Context, StoredObject

__all__ = [
    "BUILD",
    "BUILT_COMMIT",
    "COMMIT_INDEX",
    "EnvironmentBuilds",
    "commits_of",
    "engine_of",
    "waiting_for",
]

BUILD = "catalyst.dev/build"
"""A label of a build's objects: the name of the build, which stands for the image that it makes."""
BUILT_COMMIT = "catalyst.dev/commit"
"""A label of a build's objects: the commit that is built."""
ENGINE = "catalyst.dev/build-engine"
"""A label of a build's objects: what builds, whatever the project says later."""
COMMIT_INDEX = "commit"
"""Finds Environments by their namespace and the commit that they show or want."""
_BECAME = {"succeeded": "succeeded", "running": "cancelled"}
"""What became of a build that is taken away; one that failed was counted when it did."""


def commits_of(stored: StoredObject) -> Iterable[tuple[str, str]]:
    """For the index: the commit that an Environment asks for, and the whole name of it once that is known."""
    environment = Environment.decode(stored.raw)
    commits = {environment.spec.source.commit_sha.lower(), environment.status.seen_commit}
    return [(stored.namespace, _as_label(commit)) for commit in commits if commit]


def waiting_for(build: StoredObject, cache: Cache) -> Iterable[tuple[str, str]]:
    """For a Watch: the environment that owns a build, and all that may wait for it."""
    concerned = list(owners(build))
    commit = build.labels.get(BUILT_COMMIT)
    for home, _ in tuple(concerned) if commit else ():
        concerned += [each.key for each in cache.by_index(Environment, COMMIT_INDEX, (home, commit))]
    return concerned


def engine_of(build: Manifest) -> str:
    """What builds, or built."""
    engine: str = build["metadata"]["labels"].get(ENGINE, "")
    return engine


class EnvironmentBuilds:
    """The builds that an environment owns, in the namespace of builds."""

    def __init__(self, builds: Builds, settings: Settings, metrics: EnvironmentMetrics) -> None:
        self._builds = builds
        self._place = settings.build_namespace
        self._metrics = metrics

    def marked(self, visit: Visit, build: str, manifest: Manifest) -> Manifest:
        """An object of a build, with the marks of its owner."""
        metadata: dict[str, Any] = dict(manifest["metadata"])
        metadata["namespace"] = self._place
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            MANAGED_BY: OPERATOR,
            OWNER_UID: visit.environment.metadata.uid,
            BUILD: build,
            BUILT_COMMIT: _as_label(visit.commit),
            ENGINE: self._builds.engine(visit.project),
        }
        metadata["annotations"] = {**(metadata.get("annotations") or {}), OWNER: str(visit.ctx.key)}
        return {**manifest, "metadata": metadata}

    async def end(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Take away all builds of the environment: what they were for is there."""
        for kind, found in self._owned(environment, ctx):
            await self._delete(kind, found, ctx)

    async def let_go(
        self, environment: Environment, ctx: Context[Environment], *, build: str = "", commit: str = ""
    ) -> None:
        """End the environment's builds, but for the one that it wants and those that others want.

        :param build: the name of the one that it wants.
        :param commit: what that builds: another way to build the same commit is wanted by nobody.
        """
        for kind, found in self._owned(environment, ctx):
            labels = found["metadata"]["labels"]
            if labels[BUILD] == build:
                continue
            built = labels[BUILT_COMMIT]
            heir = _heir(environment, ctx, built) if built != _as_label(commit) else None
            if heir is None:
                await self._delete(kind, found, ctx)
            else:
                await self._hand_on(kind, found, heir, ctx)

    def _owned(
        self, environment: Environment, ctx: Context[Environment]
    ) -> Sequence[tuple[str, dict[str, Any]]]:
        labels = f"{OWNER_UID}={environment.metadata.uid},{BUILD}"
        return [
            (kind, found)
            for kind in BUILD_KINDS
            for found in ctx.list(kind, namespace=self._place, labels=labels)
            if not found["metadata"].get("deletionTimestamp")
        ]

    async def _delete(self, kind: str, found: Manifest, ctx: Context[Environment]) -> None:
        gone = await ctx.delete(kind, found["metadata"]["name"], namespace=self._place)
        if gone and kind in (JOB, KPACK_IMAGE):
            became = _BECAME.get(self._builds.progress(found).state)
            if became is not None:
                self._metrics.builds.labels(engine_of(found), became).inc()

    async def _hand_on(
        self, kind: str, found: Manifest, heir: Environment, ctx: Context[Environment]
    ) -> None:
        metadata = {
            "uid": found["metadata"]["uid"],
            "labels": {OWNER_UID: heir.metadata.uid},
            "annotations": {OWNER: str(heir.metadata)},
        }
        await ctx.patch(kind, found["metadata"]["name"], {"metadata": metadata}, namespace=self._place)


def _as_label(commit: str) -> str:
    """A commit as far as a label holds it: one of the long kind has a digit more."""
    return commit[:LABEL_LIMIT]


def _heir(environment: Environment, ctx: Context[Environment], commit: str) -> Environment | None:
    """Another environment of the same project that wants this commit."""
    for each in ctx.find(Environment, COMMIT_INDEX, (environment.namespace, commit)):
        wanted = each.spec.source.commit_sha.removesuffix("...").lower()
        if (
            each.metadata.uid != environment.metadata.uid
            and not each.metadata.deleting
            and commit.startswith(_as_label(wanted))
        ):
            return each
    return None
