"""Projects: looks at their repositories, and has an Environment for each branch and pull request that gets one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.environments.controllers.project_status import is_readable, report
from kapsa.environments.interests import Interests
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import (
    BRANCH,
    ENVIRONMENT,
    FINALIZER,
    MANAGED_BY,
    OPERATOR,
    OWNER,
    OWNER_UID,
    PROJECT,
    TEAM,
    label_value,
    namespace_name,
)
from kapsa.environments.resources import (
    Environment,
    PermanentEnvironment,
    Project,
    Registry,
    TrackedBranch,
)
from kapsa.environments.settings import Settings
from kapsa.environments.sources.listings import Listing, Listings
from kapsa.environments.sources.poll_schedule import POLL_REQUESTED, PollSchedule
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION, PreviewPlan, Tracking, plan, track
from kapsa.environments.tenancy.namespaces import (
    NAMESPACE,
    ForeignNamespaceError,
    NamespaceChangingError,
    claim,
    owners,
    release,
)
from kapsa.runtime import (
    BadRequest,
    Context,
    Controller,
    Forbidden,
    Invalid,
    Key,
    Requeue,
    StoredObject,
    Watch,
    rule_for,
)

__all__ = ["ROLE", "ProjectController"]

SECRET = "v1/Secret"  # noqa: S105 - a kind
ROLE = "catalyst.dev/role"
"""A label of the Environments that a Project made: preview or permanent. It leaves others alone."""
_REFUSED_AGAIN_SECONDS = 60.0
_SOMEBODY_ELSES = (
    "somebody else made one of this name, which is left alone: delete it, or choose another name"
)


class _Remembered(msgspec.Struct, frozen=True):
    """What a listing led to."""

    number: int
    """Of the listing."""
    asked: tuple[str, ...]
    """What was asked for then: with anything else the same listing may lead elsewhere."""
    base: Tracking
    """What the status said before."""
    result: Tracking

    def result_of(self, written: Tracking) -> bool:
        """Whether the status says what it said before, or what came of it: nobody else has written since."""
        return any(
            list(written.tracked) == list(each.tracked)
            and written.last_pull_request == each.last_pull_request
            for each in (self.base, self.result)
        )


class ProjectController(Controller[Project]):
    """Reconciles Projects."""

    finalizer = FINALIZER
    rules = (
        rule_for(NAMESPACE, "create", "patch", "delete"),
        rule_for(Environment, "create", "patch", "delete"),
        rule_for(SECRET, "get"),
    )

    def __init__(
        self,
        settings: Settings,
        *,
        listings: Listings,
        metrics: EnvironmentMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or EnvironmentMetrics()
        self.max_concurrent_reconciles = settings.max_concurrent_reconciles
        self.reconcile_timeout = settings.reconciliation_timeout
        self.interests = Interests()
        self._listings = listings
        self._schedule = PollSchedule(rng)
        self._tracked: dict[str, _Remembered] = {}
        self._of_namespace = self.interests.readers(NAMESPACE)
        self.watches = (
            Watch(NAMESPACE, map=self._whose_namespace),
            Watch(Environment, map=self._whose_environment),
            Watch(Registry, map=self.interests.readers(Registry)),
            Watch(SECRET, map=self.interests.readers(SECRET), metadata_only=True),
        )
        super().__init__()

    def _whose_namespace(self, stored: StoredObject) -> Iterable[Key | tuple[str, str]]:
        return [*owners(stored), *self._of_namespace(stored)]

    def _whose_environment(self, stored: StoredObject) -> Iterable[Key | tuple[str, str]]:
        """The project whose namespace it is in, whoever made it."""
        return self.interests.who_reads(NAMESPACE, stored.namespace)

    # -- life --------------------------------------------------------------------------------------------------

    async def reconcile(self, project: Project, ctx: Context[Project]) -> Requeue | None:
        started = time.perf_counter()
        result = "error"
        try:
            requeue = await self._reconcile(project, ctx)
            result = "success" if ctx.status.is_true("Ready") else "not_ready"
        finally:
            self.metrics.project_reconciles.labels(result).inc()
            self.metrics.project_reconcile_seconds.observe(time.perf_counter() - started)
        return requeue

    async def _reconcile(self, project: Project, ctx: Context[Project]) -> Requeue | None:
        home = namespace_name(project.namespace, project.name)
        self.interests.note(ctx.key, NAMESPACE, home)
        try:
            await claim(ctx, home, labels=_namespace_labels(project))
        except (ForeignNamespaceError, NamespaceChangingError) as error:
            ctx.condition("Ready", False, reason=error.reason, message=str(error))
            made_anew = isinstance(error, NamespaceChangingError) and ctx.status.namespace is None
            return Requeue(after=0) if made_anew else None
        listing = await self._look(project, ctx)
        here = {each.name: each for each in ctx.list(Environment, namespace=home)}
        refused: dict[str, str] = {}
        wanted = await self._environments(project, ctx, home, here, listing, refused)
        report(project, ctx, here.values(), listing, self._registry(project, ctx), refused)
        due = [self._due_in(project, ctx)]
        if refused:
            due.append(_REFUSED_AGAIN_SECONDS)
        if wanted.next_expiry is not None:
            due.append(max(0.0, (wanted.next_expiry - ctx.now()).total_seconds()))
        return Requeue(after=min(due))

    async def finalize(self, project: Project, ctx: Context[Project]) -> Requeue | None:
        waits_for = await release(ctx, namespace_name(project.namespace, project.name))
        if waits_for:
            ctx.condition("Ready", False, reason="Terminating", message=waits_for)
            return Requeue(after=self.settings.deletion_report_after)
        self._schedule.forget(project.metadata.uid)
        self._tracked.pop(project.metadata.uid, None)
        self._listings.forget(project)
        self.interests.forget(ctx.key)
        return None

    # -- the repository ----------------------------------------------------------------------------------------

    async def _look(self, project: Project, ctx: Context[Project]) -> Listing | None:
        """Look at the repository if it is time; the last complete listing, if there was one."""
        uid, asked = project.metadata.uid, self._asked(project, ctx)
        if self._due_in(project, ctx) <= 0:
            interval = self._interval(project)
            try:
                listing = await self._listings.fresh(ctx, project, self.interests)
            except ExternalError as error:
                self._schedule.failed(uid, asked, ctx.now(), interval, error)
                ctx.condition(
                    "RepositoryAccessible",
                    False,
                    reason=error.reason,
                    message=f"{error}{f' ({error.hint})' if error.hint else ''}",
                )
            else:
                self._schedule.succeeded(uid, asked, ctx.now(), interval)
                count = len(listing.refs.branches)
                ctx.condition(
                    "RepositoryAccessible", True, reason="Listed", message=f"it shows {count} branches"
                )
        return self._listings.known(project)

    def _due_in(self, project: Project, ctx: Context[Project]) -> float:
        return self._schedule.due_in(project.metadata.uid, self._asked(project, ctx), ctx.now())

    def _interval(self, project: Project) -> float:
        chosen = project.spec.source.poll_interval
        return chosen.seconds if chosen is not None else self.settings.default_poll_interval

    def _asked(self, project: Project, ctx: Context[Project]) -> tuple[str, ...]:
        """What a poll depends on: if any of it changes, it is worth while at once."""
        named = project.spec.source.credentials
        version = ""
        if named is not None:
            secret = ctx.get(SECRET, named.secret_ref.name, namespace=project.namespace)
            version = secret["metadata"]["resourceVersion"] if secret is not None else "missing"
        requested = project.metadata.annotations.get(POLL_REQUESTED, "")
        return project.spec.source.repository_url, version, requested

    # -- environments ------------------------------------------------------------------------------------------

    async def _environments(
        self,
        project: Project,
        ctx: Context[Project],
        home: str,
        here: Mapping[str, Environment],
        listing: Listing | None,
        refused: dict[str, str],
    ) -> PreviewPlan:
        """Have the Environments that the project and its repository call for, and no others of ours.

        One that the API server does not take is told of in `refused`, and keeps no other from coming or going.
        """
        ours = {name: each for name, each in here.items() if _is_ours(project, each)}
        previews = [name for name, each in ours.items() if each.metadata.labels[ROLE] == "preview"]
        tracking = await self._track(project, ctx, listing, previews)
        ctx.status.tracked = list(tracking.tracked)
        ctx.status.last_pull_request = tracking.last_pull_request
        wanted = plan(project, tracking.tracked, previews, now=ctx.now())
        ctx.status.queue = list(wanted.queue)
        keep = {each.name for each in project.spec.environments} | {each.name for each in wanted.active}
        for name, each in ours.items():
            if name not in keep and not each.metadata.deleting:
                await ctx.delete(each)
        manifests = [
            *(self._permanent(project, home, here, each, listing) for each in project.spec.environments),
            *(self._preview(project, home, here, each) for each in wanted.active),
        ]
        for name in (
            *(each.name for each in project.spec.environments),
            *(each.name for each in wanted.active),
        ):
            if name in here and not _is_ours(project, here[name]):
                refused[name] = _SOMEBODY_ELSES
        for manifest in filter(None, manifests):
            try:
                await ctx.apply(manifest, owner=False)
            except (BadRequest, Forbidden, Invalid) as error:
                refused[manifest["metadata"]["name"]] = error.message
        return wanted

    async def _track(
        self, project: Project, ctx: Context[Project], listing: Listing | None, previews: Sequence[str]
    ) -> Tracking:
        """What is known of the branches, with the last listing taken in once, and anew when the project has changed."""
        uid, status = project.metadata.uid, project.status
        written = Tracking(tracked=tuple(status.tracked), last_pull_request=status.last_pull_request)
        held = self._tracked.get(uid)
        # What was worked out counts before it is written, lest a conflict cost a whole poll interval; what another
        # process wrote since counts more.
        known = held.result if held is not None and held.result_of(written) else written
        asked = (str(project.metadata.generation), project.metadata.annotations.get(ALLOW_MASS_DELETION, ""))
        again = held is not None and listing is not None and held.number == listing.number
        if listing is None or (again and held is not None and held.asked == asked):
            return known
        now = ctx.now().replace(microsecond=0)
        tracking = track(project, listing.refs, known, previews, now=now, again=again)
        self._tracked[uid] = _Remembered(listing.number, asked, written, tracking)
        await self._tell_of_brake(ctx, tracking)
        return tracking

    async def _tell_of_brake(self, ctx: Context[Project], tracking: Tracking) -> None:
        if tracking.kept_by_brake:
            names = ", ".join(tracking.kept_by_brake[:10])
            ctx.event(
                "Warning",
                "DeletionBraked",
                f"{len(tracking.kept_by_brake)} previews without a branch stay for now ({names}): no more than 30 % go "
                "at once; annotate the project with catalyst.dev/allow-mass-deletion=true to let them go",
                action="Delete",
            )

    def _permanent(
        self,
        project: Project,
        home: str,
        here: Mapping[str, Environment],
        wanted: PermanentEnvironment,
        listing: Listing | None,
    ) -> dict[str, Any] | None:
        """The Environment as it should be; None if nothing about it is ours to say."""
        found = here.get(wanted.name)
        head = listing.refs.branches.get(wanted.branch) if listing is not None else None
        if found is not None and not _may_change(project, found):
            return None
        if found is None or not is_readable(found):
            if head is None:
                return None  # its branch does not exist yet, or nobody has seen the repository
            commit = head
        else:
            followed = wanted.auto_sync and head is not None
            commit = head if followed and head is not None else found.spec.source.commit_sha
            if not wanted.auto_sync and found.spec.type == wanted.type and _branch_of(found) == wanted.branch:
                return None  # its commit is somebody else's to set, and nothing else has changed
        source = {"commitSha": commit, "branch": wanted.branch}
        spec = {"projectRef": {"name": project.name}, "type": wanted.type, "source": source}
        return _environment(project, home, wanted.name, "permanent", spec)

    def _preview(
        self, project: Project, home: str, here: Mapping[str, Environment], wanted: TrackedBranch
    ) -> dict[str, Any] | None:
        """The Environment as it should be; None if it is not ours to change."""
        found = here.get(wanted.name)
        if found is not None and not _may_change(project, found):
            return None
        source: dict[str, Any] = {"commitSha": wanted.commit}
        if wanted.branch:
            source["branch"] = wanted.branch
        if wanted.pr_number is not None:
            source["prNumber"] = wanted.pr_number
        spec = {
            "projectRef": {"name": project.name},
            "type": "development",
            "source": source,
            "ttl": str(project.spec.preview_environments.ttl),
        }
        return _environment(project, home, wanted.name, "preview", spec)

    def _registry(self, project: Project, ctx: Context[Project]) -> Registry | None:
        named = project.spec.registry.name if project.spec.registry is not None else None
        if named is None:
            return None
        self.interests.note(ctx.key, Registry, named)
        return ctx.get(Registry, named, namespace="")


def _namespace_labels(project: Project) -> dict[str, str]:
    labels = {MANAGED_BY: OPERATOR, TEAM: label_value(project.namespace), PROJECT: label_value(project.name)}
    return {name: value for name, value in labels.items() if value}


def _environment(project: Project, home: str, name: str, role: str, spec: dict[str, Any]) -> dict[str, Any]:
    branch = spec["source"].get("branch", "")
    labels = {
        MANAGED_BY: OPERATOR,
        TEAM: label_value(project.namespace),
        PROJECT: label_value(project.name),
        ENVIRONMENT: label_value(name),
        BRANCH: label_value(branch),
        OWNER_UID: project.metadata.uid,
        ROLE: role,
    }
    annotations = {OWNER: f"{project.namespace}/{project.name}", **({BRANCH: branch} if branch else {})}
    return {
        "apiVersion": Environment.api_version,
        "kind": Environment.kind,
        "metadata": {
            "name": name,
            "namespace": home,
            "labels": {key: value for key, value in labels.items() if value},
            "annotations": annotations,
        },
        "spec": spec,
    }


def _branch_of(environment: Environment) -> str:
    return environment.spec.source.branch or ""


def _is_ours(project: Project, environment: Environment) -> bool:
    """Whether this project made it. What people made in its namespace is theirs."""
    labels = environment.metadata.labels
    return labels.get(OWNER_UID) == project.metadata.uid and ROLE in labels


def _may_change(project: Project, environment: Environment) -> bool:
    return _is_ours(project, environment) and not environment.metadata.deleting
