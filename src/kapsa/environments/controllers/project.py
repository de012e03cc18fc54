"""Projects: polls their repositories, and creates an Environment for each selected branch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.environments.controllers.project_status import is_readable, report
from kapsa.environments.expiry import present
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
    ROLE,
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
from kapsa.environments.sources.previews import (
    ALLOW_MASS_DELETION,
    PreviewPlan,
    Tracking,
    new_commits,
    plan,
    track,
)
from kapsa.environments.sources.trust import is_approved
from kapsa.environments.tenancy.namespaces import (
    NAMESPACE,
    ForeignNamespaceError,
    NamespaceChangingError,
    NamespaceIntendedError,
    claim,
    owners,
    release,
)
from kapsa.environments.tenancy.ownership import team_of
from kapsa.environments.tenancy.team_access import (
    ACCESS_RULES,
    PROJECT_ACCESS,
    ROLE_BINDING,
    grant_access,
    projects_of_binding,
)
from kapsa.runtime import (
    BadRequest,
    Cache,
    Context,
    Controller,
    Forbidden,
    Invalid,
    Key,
    Requeue,
    StoredObject,
    Watch,
    rule_for,
    to_wire,
)

__all__ = ["ProjectController"]

SECRET = "v1/Secret"  # noqa: S105 - a kind
_NAMESPACE_INDEX = "namespace of the project"
_REFUSED_AGAIN_SECONDS = 60.0
_NOT_OURS = "the name is used by one that the Project did not create: delete it, or choose another name"


class _Remembered(msgspec.Struct, frozen=True):
    """The result of tracking a listing."""

    number: int
    """The number of the listing."""
    inputs: tuple[str, ...]
    """The inputs besides the listing: if they differ, the same listing may lead to another result."""
    base: Tracking
    """The tracking in the status before."""
    result: Tracking

    def result_of(self, written: Tracking) -> bool:
        """Return whether the status holds `base` or `result`: no other process has written since."""
        return any(
            list(written.tracked) == list(each.tracked)
            and written.last_pull_request == each.last_pull_request
            for each in (self.base, self.result)
        )


def _namespace_of(stored: StoredObject) -> Iterable[str]:
    """Return the name of a project's namespace, for the index of projects."""
    return (namespace_name(*stored.key),)


def _projects_of(stored: StoredObject, cache: Cache) -> Iterable[Key]:
    """Return the project whose namespace an Environment is in, whether the project made it or not."""
    return [each.key for each in cache.by_index(Project, _NAMESPACE_INDEX, stored.namespace)]


class ProjectController(Controller[Project]):
    """The controller of Projects."""

    finalizer = FINALIZER
    indexes = {_NAMESPACE_INDEX: _namespace_of}  # noqa: RUF012 - a declaration
    rules = (
        rule_for(NAMESPACE, "create", "patch", "delete"),
        rule_for(Environment, "create", "patch", "delete"),
        rule_for(SECRET, "get"),
        *ACCESS_RULES,
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
        self._listings = listings
        self._schedule = PollSchedule(rng)
        self._tracked: dict[str, _Remembered] = {}
        self.watches = (
            Watch(NAMESPACE, map=owners),
            Watch(Environment, map=_projects_of),
            Watch(Registry),
            Watch(SECRET, metadata_only=True),
            Watch(ROLE_BINDING, map=projects_of_binding),
        )
        super().__init__()

    # -- reconcile and finalize ------------------------------------------------------------------------------

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
        try:
            await claim(ctx, home, self.settings, labels=_namespace_labels(project))
        except (ForeignNamespaceError, NamespaceChangingError) as error:
            ctx.condition("Ready", False, reason=error.reason, message=str(error))
            return Requeue(after=0) if isinstance(error, NamespaceIntendedError) else None
        enabled = self.settings.team_access
        await grant_access(ctx, home, team=project.namespace, access=PROJECT_ACCESS, enabled=enabled)
        listing = await self._poll(project, ctx)
        here = {each.name: each for each in ctx.list(Environment, namespace=home)}
        refused: dict[str, str] = {}
        planned = await self._environments(project, ctx, home, here, listing, refused)
        report(
            project, ctx, here.values(), listing, self._registry(project, ctx), refused, team_of(ctx, project)
        )
        due = [self._due_in(project, ctx)]
        if refused:
            due.append(_REFUSED_AGAIN_SECONDS)
        if planned.next_expiry is not None:
            due.append(max(0.0, (planned.next_expiry - ctx.now()).total_seconds()))
        return Requeue(after=min(due))

    async def finalize(self, project: Project, ctx: Context[Project]) -> Requeue | None:
        waits_for = await release(ctx)
        if waits_for:
            ctx.condition("Ready", False, reason="Terminating", message=waits_for)
            return Requeue(after=self.settings.deletion_report_after)
        self._schedule.forget(project.metadata.uid)
        self._tracked.pop(project.metadata.uid, None)
        self._listings.forget(project)
        return None

    # -- the repository --------------------------------------------------------------------------------------

    async def _poll(self, project: Project, ctx: Context[Project]) -> Listing | None:
        """Poll the repository if it is due. Returns the last complete listing, if there is one."""
        uid, inputs = project.metadata.uid, self._poll_inputs(project, ctx)
        if self._due_in(project, ctx) <= 0:
            interval = self._interval(project)
            try:
                listing = await self._listings.fresh(ctx, project)
            except ExternalError as error:
                self._schedule.failed(uid, inputs, ctx.now(), interval, error)
                ctx.condition(
                    "RepositoryAccessible",
                    False,
                    reason=error.reason,
                    message=f"{error}{f' ({error.hint})' if error.hint else ''}",
                )
            else:
                self._schedule.succeeded(uid, inputs, ctx.now(), interval)
                count = len(listing.refs.branches)
                ctx.condition(
                    "RepositoryAccessible",
                    True,
                    reason="Listed",
                    message=f"the repository has {count} branches",
                )
        return self._listings.last(project)

    def _due_in(self, project: Project, ctx: Context[Project]) -> float:
        return self._schedule.due_in(project.metadata.uid, self._poll_inputs(project, ctx), ctx.now())

    def _interval(self, project: Project) -> float:
        chosen = project.spec.source.poll_interval
        return chosen.seconds if chosen is not None else self.settings.default_poll_interval

    def _poll_inputs(self, project: Project, ctx: Context[Project]) -> tuple[str, ...]:
        """Return the inputs of a poll: when one changes, the next poll is due at once."""
        named = project.spec.source.credentials
        version = ""
        if named is not None:
            secret = ctx.get(SECRET, named.secret_ref.name, namespace=project.namespace, track=True)
            version = secret["metadata"]["resourceVersion"] if secret is not None else "missing"
        requested = project.metadata.annotations.get(POLL_REQUESTED, "")
        return project.spec.source.repository_url, version, requested

    # -- environments ----------------------------------------------------------------------------------------

    async def _environments(
        self,
        project: Project,
        ctx: Context[Project],
        home: str,
        here: Mapping[str, Environment],
        listing: Listing | None,
        refused: dict[str, str],
    ) -> PreviewPlan:
        """Create the Environments that the project and its repository ask for, and delete any others of ours.

        One that the API server rejects is added to `refused`, and does not block the others.
        """
        ours = {name: each for name, each in here.items() if _is_ours(project, each)}
        previews = [name for name, each in ours.items() if each.metadata.labels[ROLE] == "preview"]
        tracking = await self._track(project, ctx, listing, previews)
        ctx.status.tracked = list(tracking.tracked)
        ctx.status.last_pull_request = tracking.last_pull_request
        approved = [
            name for name in previews if is_approved(ours[name], ours[name].spec.source.commit_sha.lower())
        ]
        planned = plan(project, tracking.tracked, previews, now=ctx.now(), approved=approved)
        ctx.status.queue = list(planned.queue)
        keep = {each.name for each in project.spec.environments} | {each.name for each in planned.active}
        for name, each in ours.items():
            if name not in keep and not each.metadata.deleting and await ctx.delete(each):
                why = f"Environment {name}: its branch is gone, or the Project no longer asks for it"
                ctx.log.info("environment deleted", environment=name, why=why)
                ctx.event("Normal", "EnvironmentDeleted", why, action="Delete")
        manifests = [
            *(self._permanent(project, home, here, each, listing) for each in project.spec.environments),
            *(self._preview(project, home, here, each) for each in planned.active),
        ]
        for name in (
            *(each.name for each in project.spec.environments),
            *(each.name for each in planned.active),
        ):
            if name in here and not _is_ours(project, here[name]):
                refused[name] = _NOT_OURS
        for manifest in filter(None, manifests):
            try:
                await ctx.apply(manifest, owner=False)
            except (BadRequest, Forbidden, Invalid) as error:
                refused[manifest["metadata"]["name"]] = error.message
        return planned

    async def _track(
        self, project: Project, ctx: Context[Project], listing: Listing | None, previews: Sequence[str]
    ) -> Tracking:
        """Return the tracked branches. Each listing counts once, and again if the project changes."""
        uid, status = project.metadata.uid, project.status
        written = Tracking(tracked=tuple(status.tracked), last_pull_request=status.last_pull_request)
        held = self._tracked.get(uid)
        # Use the result before it is written, so that a conflict does not cost an interval, unless another
        # process has written since.
        before = held.result if held is not None and held.result_of(written) else written
        inputs = (str(project.metadata.generation), project.metadata.annotations.get(ALLOW_MASS_DELETION, ""))
        again = held is not None and listing is not None and held.number == listing.number
        if listing is None or (again and held is not None and held.inputs == inputs):
            return before
        now = ctx.now().replace(microsecond=0)
        times = await self._commit_times(new_commits(project, listing.refs, before, now=now), project, ctx)
        moments = [project.metadata.creation_timestamp, *(times or {}).values()]
        now = (await present(ctx.client, now, *moments)).replace(microsecond=0)
        tracking = track(project, listing.refs, before, previews, now=now, times=times, again=again)
        self._tracked[uid] = _Remembered(listing.number, inputs, written, tracking)
        self._report_brake(ctx, tracking)
        return tracking

    async def _commit_times(
        self, commits: Sequence[str], project: Project, ctx: Context[Project]
    ) -> Mapping[str, datetime] | None:
        """Return when these commits were made; None if the repository does not respond."""
        try:
            return await self._listings.commit_times(commits, ctx, project)
        except ExternalError as error:
            ctx.condition("RepositoryAccessible", False, reason=error.reason, message=str(error))
            return None

    def _report_brake(self, ctx: Context[Project], tracking: Tracking) -> None:
        if tracking.kept_by_brake:
            names = ", ".join(tracking.kept_by_brake[:10])
            ctx.event(
                "Warning",
                "DeletionBraked",
                f"kept {len(tracking.kept_by_brake)} previews whose branches are gone ({names}): at most 30 % are deleted "
                "at once; to delete them all, annotate the Project with catalyst.dev/allow-mass-deletion=true",
                action="Delete",
            )

    def _permanent(
        self,
        project: Project,
        home: str,
        here: Mapping[str, Environment],
        permanent: PermanentEnvironment,
        listing: Listing | None,
    ) -> dict[str, Any] | None:
        """Return the desired Environment; None if the project has nothing to set in it."""
        existing = here.get(permanent.name)
        head = listing.refs.branches.get(permanent.branch) if listing is not None else None
        if existing is not None and not _may_change(project, existing):
            return None
        if existing is None or not is_readable(existing):
            if head is None:
                return None  # its branch does not exist yet, or the repository was never listed
            commit = head
        else:
            followed = permanent.auto_sync and head is not None
            commit = head if followed and head is not None else existing.spec.source.commit_sha
            if (
                not permanent.auto_sync
                and existing.spec.type == permanent.type
                and _branch_of(existing) == permanent.branch
            ):
                return None  # its commit is set by people, and nothing else has changed
        source = {"commitSha": commit, "branch": permanent.branch}
        spec = {"projectRef": {"name": project.name}, "type": permanent.type, "source": source}
        return _environment(project, home, permanent.name, "permanent", spec)

    def _preview(
        self, project: Project, home: str, here: Mapping[str, Environment], tracked: TrackedBranch
    ) -> dict[str, Any] | None:
        """Return the desired Environment; None if the project must not change it."""
        existing = here.get(tracked.name)
        if existing is not None and not _may_change(project, existing):
            return None
        source: dict[str, Any] = {"commitSha": tracked.commit, "committedAt": to_wire(tracked.seen_at)}
        if tracked.branch:
            source["branch"] = tracked.branch
        if tracked.pr_number is not None:
            source["prNumber"] = tracked.pr_number
        spec = {
            "projectRef": {"name": project.name},
            "type": "development",
            "source": source,
            "ttl": str(project.spec.preview_environments.ttl),
        }
        return _environment(project, home, tracked.name, "preview", spec)

    def _registry(self, project: Project, ctx: Context[Project]) -> Registry | None:
        named = project.spec.registry.name if project.spec.registry is not None else None
        if named is None:
            return None
        return ctx.get(Registry, named, namespace="", track=True)


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
    """Return whether this project created it.

    Others in the namespace belong to the people who created them.
    """
    labels = environment.metadata.labels
    return labels.get(OWNER_UID) == project.metadata.uid and ROLE in labels


def _may_change(project: Project, environment: Environment) -> bool:
    return _is_ours(project, environment) and not environment.metadata.deleting
