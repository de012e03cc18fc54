"""Trials of a release on a cluster: every object by dry run, and what Helm needs besides."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.registry.inventory import foreign_manager
from kapsa.fleet.domain.rollout.plans import PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import is_crd
from kapsa.fleet.infrastructure.clusters.answers import answering
from kapsa.fleet.infrastructure.clusters.api_versions import read_api_versions
from kapsa.fleet.infrastructure.preflight.cluster_kinds import ClusterKinds, kind_key, resolve_kinds
from kapsa.fleet.infrastructure.preflight.crd_trial import try_crds
from kapsa.fleet.infrastructure.preflight.manifest_diff import hook_events, manifest_diff
from kapsa.fleet.infrastructure.preflight.manifest_documents import (
    object_name,
    read_objects,
    replace_objects,
)
from kapsa.fleet.infrastructure.preflight.object_trial import ObjectOutcome, ObjectTrial
from kapsa.fleet.infrastructure.preflight.release_size import check_release_size
from kapsa.fleet.infrastructure.preflight.rights import missing_rights
from kapsa.fleet.orchestrator.hidden_texts import texts_at
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.trials import PresentRelease, TrialReport, TrialRequest
from kapsa.runtime import Client, NotFound

__all__ = ["DryRunTrials"]

_PARALLEL = 4
_SECONDS = 120.0
_INSTALL = frozenset({"pre-install", "post-install"})
_UPGRADE = frozenset({"pre-upgrade", "post-upgrade"})

Content = dict[str, Any]


class DryRunTrials:
    """Dry runs of a manifest, sent by the clients of registered clusters."""

    def __init__(self, client: Callable[[uuid.UUID], AbstractAsyncContextManager[Client]]) -> None:
        self._client = client

    async def attempt(self, request: TrialRequest) -> TrialReport:
        """Try a manifest. Raises `ClusterUnreachable` if the cluster does not answer."""
        async with self._reach(request.cluster_id) as client:
            try:
                return await _Trial(client, request).run()
            except ExternalError as error:
                problem = PreflightProblem(
                    "InvalidManifest", f"the rendered chart cannot be applied: {error}"
                )
                return TrialReport(request.manifest, problems=(problem,))

    async def api_versions(self, cluster_id: uuid.UUID) -> tuple[str, ...]:
        """Return the API versions that a cluster serves. Raises `ClusterUnreachable` if it does not answer."""
        async with self._reach(cluster_id) as client:
            return await read_api_versions(client)

    @asynccontextmanager
    async def _reach(self, cluster_id: uuid.UUID) -> AsyncIterator[Client]:
        try:
            async with answering("the cluster", _SECONDS), self._client(cluster_id) as client:
                yield client
        except UnknownObject as error:
            raise ClusterUnreachable(str(error)) from None


class _Trial:
    """One trial. It is read from top to bottom: parse, resolve, try, report."""

    def __init__(self, client: Client, request: TrialRequest) -> None:
        self._client = client
        self._request = request
        self._secrets = tuple(dict.fromkeys(_secrets(request)))
        replaced = request.replaced
        self._trial = ObjectTrial(
            client,
            request.release,
            request.on_conflict,
            secrets=self._secrets,
            migrates=replaced is not None and replaced.client_side,
        )

    async def run(self) -> TrialReport:
        request, release = self._request, self._request.release
        objects = await asyncio.to_thread(read_objects, request.manifest, "the rendered chart")
        contents = [each.content for each in objects]
        crds = _definitions(request.crds, contents)
        kinds = await resolve_kinds(self._client, contents, crds, release.namespace)
        replaced = await asyncio.to_thread(_by_name, request.replaced, release.namespace)
        outcomes = await self._try_all(contents, kinds, replaced)
        manifest = replace_objects(request.manifest, objects, [each.content for each in outcomes])
        resources = [
            (resource, kinds.namespace(each, release.namespace))
            for each in contents
            if (resource := kinds.served.get(kind_key(each)))
        ]
        problems = [
            *kinds.problems,
            *_absent_namespaces(kinds, contents, release),
            *await missing_rights(self._client, release, resources, kinds.missing_namespaces),
            *await try_crds(self._client, crds, request.live or release, release),
            *await self._size(manifest),
            *(problem for each in outcomes for problem in each.problems),
        ]
        conflicts = tuple(conflict for each in outcomes for conflict in each.conflicts)
        notices = [
            *_kept_namespaces(replaced.values(), contents),
            *(notice for each in outcomes for notice in each.notices),
        ]
        return TrialReport(
            manifest,
            conflicts,
            tuple(dict.fromkeys(problems)),
            tuple(dict.fromkeys(notices)),
            await asyncio.to_thread(self._diff, [each.content for each in outcomes]),
            tuple(addition for each in outcomes for addition in each.additions),
        )

    async def _try_all(
        self, contents: list[Content], kinds: ClusterKinds, replaced: Mapping[str, Content]
    ) -> list[ObjectOutcome]:
        slots = asyncio.Semaphore(_PARALLEL)

        async def one(content: Content) -> ObjectOutcome:
            async with slots:
                return await self._try(content, kinds, replaced)

        tasks = [asyncio.create_task(one(each)) for each in contents]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(
        self, content: Content, kinds: ClusterKinds, replaced: Mapping[str, Content]
    ) -> ObjectOutcome:
        namespace = kinds.namespace(content, self._request.release.namespace)
        name = object_name(content, namespace)
        key, events = kind_key(content), hook_events(content)
        # Helm does not apply CRDs: they are tried as the rollout applies them.
        if key not in kinds.served or is_crd(content) or (events and not events & self._events()):
            return ObjectOutcome(content)
        try:
            if namespace in kinds.missing_namespaces:
                return await self._trial.attempt_elsewhere(content, name, namespace)
            live = await self._live(content, namespace) if events or name not in replaced else None
            if live is not None and events:
                return ObjectOutcome(content)  # Helm deletes the hook of the last time first
            owner = _owner(live["metadata"], self._request.release) if live is not None else ""
            if owner:
                return ObjectOutcome(content, (), (_other_owner(name, owner),))
            outcome = await self._trial.attempt(content, name, namespace)
        except (ValueError, TypeError) as error:  # labels that are a list, a name with a slash
            return ObjectOutcome(content, (), (PreflightProblem("InvalidObject", f"{name}: {error}"),))
        return _changing(outcome, name) if key in kinds.changing else outcome

    def _events(self) -> frozenset[str]:
        return _UPGRADE if self._request.replaced is not None else _INSTALL

    async def _live(self, content: Content, namespace: str) -> Mapping[str, Any] | None:
        kind, name = "/".join(kind_key(content)), str(content["metadata"].get("name", ""))
        try:
            live: Mapping[str, Any] = await self._client.get(
                kind, name, namespace=namespace, metadata_only=True
            )
        except NotFound:
            return None
        return live

    async def _size(self, manifest: bytes) -> tuple[PreflightProblem, ...]:
        if not self._request.chart:
            return ()
        return await asyncio.to_thread(
            check_release_size, self._request.chart, self._request.values, manifest
        )

    def _diff(self, after: list[Content]) -> str:
        before = _contents(self._request.running)
        return manifest_diff(before, after, self._request.release.namespace, self._secrets)


def _definitions(crds: Iterable[Mapping[str, Any]], contents: list[Content]) -> list[Mapping[str, Any]]:
    """Return the CRDs that the rollout applies: those of the chart's folder, and those of the manifest."""
    definitions = [*crds, *(each for each in contents if is_crd(each))]
    return list({str(each["metadata"].get("name", "")): each for each in definitions}.values())


def _changing(outcome: ObjectOutcome, name: str) -> ObjectOutcome:
    """Return the outcome for a resource whose CRD the version brings: the CRD of today does not decide."""
    invalid = [each for each in outcome.problems if each.check == "InvalidObject"]
    if not invalid:
        return outcome
    others = tuple(each for each in outcome.problems if each not in invalid)
    notices = tuple(f"by the CRD that the cluster has now, {each.message}" for each in invalid)
    return msgspec.structs.replace(outcome, problems=others, notices=(*outcome.notices, *notices))


def _owner(metadata: Mapping[str, Any], release: ReleaseRef) -> str:
    """Return a clause about the owner of a live object; empty if Helm takes it for one of this release."""
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    other = (
        annotations.get("meta.helm.sh/release-namespace"),
        annotations.get("meta.helm.sh/release-name"),
    )
    if labels.get("app.kubernetes.io/managed-by") == "Helm" and other == (release.namespace, release.name):
        return ""
    manager = foreign_manager(metadata)
    if manager is not None:
        return f"is managed by {manager}"
    return f"belongs to the release {other[0]}/{other[1]}" if other[1] else "belongs to no release"


def _other_owner(name: str, owner: str) -> PreflightProblem:
    message = (
        f"{name} exists and {owner}: Helm does not take it over. Remove it, or let the chart use another name"
    )
    return PreflightProblem("OtherOwner", message)


def _absent_namespaces(
    kinds: ClusterKinds, contents: list[Content], release: ReleaseRef
) -> Iterator[PreflightProblem]:
    """Yield a problem for each namespace that neither Helm nor the chart creates."""
    made = {each["metadata"].get("name") for each in contents if each["kind"] == "Namespace"}
    for each in sorted(kinds.missing_namespaces - made - {release.namespace}):
        yield PreflightProblem(
            "MissingNamespace",
            f"the chart has objects in the namespace {each}, which does not exist: create it",
        )


def _kept_namespaces(before: Iterable[Content], contents: list[Content]) -> Iterator[str]:
    """Yield a notice for each namespace that the version no longer has."""
    made = {each["metadata"].get("name") for each in contents if each["kind"] == "Namespace"}
    had = {str(each["metadata"].get("name", "")) for each in before if each["kind"] == "Namespace"}
    for each in sorted(had - made):
        yield f"the version no longer has the namespace {each}, which is kept with everything in it"


def _secrets(request: TrialRequest) -> Iterator[str]:
    yield from texts_at(request.values, request.secret_paths)
    for release in (request.replaced, request.running):
        if release is not None:
            yield from texts_at(release.values, request.secret_paths)


def _by_name(release: PresentRelease | None, namespace: str) -> dict[str, Content]:
    """Return the objects of a release by their names, with the default namespace and without one."""
    contents = _contents(release)
    return {name: each for each in contents for name in (object_name(each), object_name(each, namespace))}


def _contents(release: PresentRelease | None) -> list[Content]:
    if release is None:
        return []
    try:
        return [
            each.content for each in read_objects(release.manifest.encode(), "the manifest of the release")
        ]
    except ExternalError:
        return []  # anybody may have written the record
