"""Environments: from a commit to an application that serves at a URL, step by step, and their deletion."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.git.address import is_commit
from kapsa.adapters.oci.registries import DigestCache, Images
from kapsa.environments.controllers.lifetime import Lifetime, record_commit
from kapsa.environments.controllers.transitions import deletion, record, transitions
from kapsa.environments.expiry import ExpiryVerdict
from kapsa.environments.hosts.routes import CERTIFICATE, GATEWAY, HTTP_ROUTE
from kapsa.environments.images.repository_rules import registry_refusal
from kapsa.environments.images.retention import ImageRetention
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import FINALIZER, OWNER_UID
from kapsa.environments.namespace_objects.builds import (
    COMMIT_INDEX,
    BuildMapping,
    EnvironmentBuilds,
    commits_of,
)
from kapsa.environments.namespace_objects.children import (
    JOB,
    KPACK_IMAGE,
    POLICY_KINDS,
    RENDERED_KINDS,
    RESOURCE_QUOTA,
)
from kapsa.environments.namespace_objects.copies import CONFIG_MAP, SECRET, Copies
from kapsa.environments.namespace_objects.kept_values import KeptValues
from kapsa.environments.ports import Builds, CommitResolver, Domains, ManifestRenderer, Prober
from kapsa.environments.resources import DomainPool, Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.sources.listings import Listings
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.environments.sources.trust import is_trusted, is_undecided, needs_refs, record_trust
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.apply import SUSPENDED, ApplyStep
from kapsa.environments.steps.approval import ApprovalStep
from kapsa.environments.steps.build import BuildStep
from kapsa.environments.steps.host import HostStep
from kapsa.environments.steps.namespace import NamespaceStep
from kapsa.environments.steps.policy import NETWORK_POLICY, PolicyStep
from kapsa.environments.steps.render import RenderStep
from kapsa.environments.steps.route import RouteStep
from kapsa.environments.steps.secrets import SecretsStep
from kapsa.environments.steps.sleep import SleepStep
from kapsa.environments.steps.step import Step, StepFailure, Waiting, advance, enforce, from_outside, report
from kapsa.environments.steps.teardown import Teardown
from kapsa.environments.steps.tls import TlsStep
from kapsa.environments.steps.verify import VerifyStep
from kapsa.environments.tenancy.api_server import api_server_watches
from kapsa.environments.tenancy.namespaces import NAMESPACE, ChildMapping, owners
from kapsa.environments.tenancy.ownership import (
    PROJECT_MISSING,
    is_namespace_of,
    namespace_recorded,
    project_key,
    project_missing,
    team_of,
)
from kapsa.environments.tenancy.quota import limits_changed
from kapsa.environments.tenancy.team_access import ACCESS_RULES, ROLE_BINDING, environments_of_binding
from kapsa.runtime import (
    Cache,
    Context,
    Controller,
    Key,
    PolicyRule,
    Requeue,
    StoredObject,
    Watch,
    annotation_changed,
    any_of,
    generation_changed,
    rule_for,
)

__all__ = ["EnvironmentController"]

_COPIED = (SECRET, CONFIG_MAP)
_ENDED_KEPT = 256
_CONDITIONS = ("NamespaceReady", "BuildReady", "DeploymentReady", "IngressReady", "TLSReady", "Ready")


def _all_environments(_: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a pool to all environments."""
    return [each.key for each in cache.select(Environment.gvk)]


class EnvironmentController(Controller[Environment]):
    """The controller of Environments."""

    finalizer = FINALIZER
    indexes = {COMMIT_INDEX: commits_of}  # noqa: RUF012 - a declaration
    rules = (
        rule_for(Environment, "delete"),
        rule_for(NAMESPACE, "create", "patch", "delete"),
        *(rule_for(kind, "create", "patch") for kind in POLICY_KINDS),
        *(rule_for(kind, "delete") for kind in (RESOURCE_QUOTA, NETWORK_POLICY)),
        *(rule_for(kind, "create", "patch", "delete") for kind in (*RENDERED_KINDS, HTTP_ROUTE, KPACK_IMAGE)),
        *(rule_for(kind, "list") for kind in ("v1/Pod", "apps/v1/ReplicaSet", "apps/v1/ControllerRevision")),
        PolicyRule(resources=("pods/log",), verbs=("get",)),
        *ACCESS_RULES,
    )

    def __init__(
        self,
        settings: Settings,
        *,
        listings: Listings,
        commits: CommitResolver,
        access: RepositoryAccess,
        renderer: ManifestRenderer,
        builds: Builds,
        images: Images,
        domains: Domains,
        prober: Prober,
        metrics: EnvironmentMetrics | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or EnvironmentMetrics()
        self.max_concurrent_reconciles = settings.max_concurrent_reconciles
        self.reconcile_timeout = settings.reconciliation_timeout
        self._listings = listings
        self._commits = commits
        self._access = access
        self._copies = Copies()
        owned, digests = EnvironmentBuilds(builds, settings, self.metrics), DigestCache(images)
        self._teardown = Teardown(settings, domains, owned, ImageRetention(digests))
        self._ready_commits: dict[str, str] = {}
        self._lifetime = Lifetime()
        self._ended: deque[str] = deque(maxlen=_ENDED_KEPT)
        """The environments whose deletion was recorded last."""
        self._kept = KeptValues()
        self._render = RenderStep(renderer, access, self._kept)
        self._walls: Sequence[Step] = (
            NamespaceStep(),
            PolicyStep(),
            SecretsStep(self._copies),
            ApprovalStep(owned),
            SleepStep(),
        )
        """The steps that need no repository. They always run: what an administrator withdraws must be gone."""
        self._steps: Sequence[Step] = (
            BuildStep(builds, digests, access, owned),
            HostStep(domains),
            self._render,
            ApplyStep(),
            RouteStep(),
            TlsStep(),
            VerifyStep(prober),
        )
        self.watches = self._watches()
        super().__init__()

    def _watches(self) -> tuple[Watch, ...]:
        children = dict.fromkeys([*POLICY_KINDS, *RENDERED_KINDS])
        owner = ChildMapping(Environment, self.settings.build_namespace)
        waiting = BuildMapping(owner)
        return (
            # All namespaces: one of another owner has none of our labels, yet blocks an environment.
            Watch(NAMESPACE, map=owners),
            # All Secrets and ConfigMaps, without their content: the sources of copies have no label of ours.
            *(Watch(kind, map=owner, metadata_only=True) for kind in _COPIED),
            *(
                Watch(kind, map=waiting if kind == JOB else owner, labels=OWNER_UID)
                for kind in children
                if kind not in (*_COPIED, RESOURCE_QUOTA)
            ),
            Watch(ROLE_BINDING, map=environments_of_binding),
            Watch(RESOURCE_QUOTA, map=owner, labels=OWNER_UID, predicates=(limits_changed,)),
            Watch(KPACK_IMAGE, map=waiting, labels=OWNER_UID, optional=True),
            Watch(HTTP_ROUTE, map=owner, labels=OWNER_UID, optional=True),
            *(Watch(kind, optional=True) for kind in (CERTIFICATE, GATEWAY)),
            Watch(
                Project,
                predicates=(
                    any_of(generation_changed, namespace_recorded, annotation_changed(ALLOW_MASS_DELETION)),
                ),
            ),
            Watch(Registry, predicates=(generation_changed,)),
            *api_server_watches(Environment),
            # A new pool may open shared services to any environment.
            Watch(DomainPool, map=_all_environments, predicates=(generation_changed,)),
        )

    # -- reconcile and finalize ------------------------------------------------------------------------------

    async def reconcile(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        project = self._project(environment, ctx)
        if project is None:
            return await self._orphaned(environment, ctx)
        try:
            return await self._reconcile(environment, project, ctx)
        finally:  # the status is written after an error, too
            record(transitions(environment.status, ctx.status), environment, project, ctx)

    async def _reconcile(
        self, environment: Environment, project: Project, ctx: Context[Environment]
    ) -> Requeue | None:
        try:
            commit = await self._commit(environment, project, ctx)
            await record_commit(commit, environment, ctx)
        except ExternalError as error:
            if not environment.spec.suspended or ctx.status.commit_sha is None:
                return await self._stop(environment, project, ctx, error)
        verdict = await self._lifetime.judge(environment, project, ctx)
        if verdict.expired:
            await self._lifetime.end(environment, ctx)
            return None
        if environment.spec.suspended:
            # Nothing is built while suspended: the last deployed commit stays until it resumes.
            if ctx.status.commit_sha is None:
                walls = await self._keep_walls(environment, project, ctx)
                return self._never_deployed(ctx, verdict, walls)
            commit = ctx.status.commit_sha
        try:
            trusted = await self._is_trusted(environment, project, commit, ctx)
        except ExternalError as error:
            return await self._stop(environment, project, ctx, error)
        visit = self._visit(environment, project, commit, ctx, trusted=trusted)
        outcome = await advance(self._walls, self._steps, visit)
        self._finish(environment, ctx, outcome)
        _sort_conditions(ctx)
        return _requeue(outcome, verdict.after, visit.revisit_after)

    async def finalize(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        left = await self._teardown.run(environment, ctx)
        if left is None:
            if environment.metadata.uid not in self._ended:  # a conflict with the finalizer repeats this run
                self._ended.append(environment.metadata.uid)
                record([deletion(environment)], environment, self._project(environment, ctx), ctx)
            self._copies.forget(environment.metadata.uid)
            self._kept.forget(environment.metadata.uid)
            self._ready_commits.pop(environment.metadata.uid, None)
            self._lifetime.forget(environment.metadata.uid)
        return left

    # -- before the steps ------------------------------------------------------------------------------------

    def _project(self, environment: Environment, ctx: Context[Environment]) -> Project | None:
        """Return the Project of the environment, if the environment names the one that owns its namespace."""
        project = self._owner(environment, ctx)
        return project if project is not None and project.name == environment.spec.project_ref.name else None

    def _owner(self, environment: Environment, ctx: Context[Environment]) -> Project | None:
        """Return the Project that owns the environment's namespace, whatever the tenant writes."""
        namespace = ctx.get(NAMESPACE, environment.namespace, namespace="", track=True)
        key = project_key(namespace)
        if namespace is None or key is None:
            return None
        project = ctx.get(Project, key.name, namespace=key.namespace, track=True)
        return project if project is not None and is_namespace_of(namespace, project) else None

    async def _orphaned(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        verdict = await self._lifetime.judge(environment, None, ctx)
        if verdict.expired:
            await self._lifetime.end(environment, ctx)
            return None
        owner = self._owner(environment, ctx)
        walls = await self._keep_walls(environment, owner, ctx) if owner is not None else None
        ctx.condition("Ready", False, reason=PROJECT_MISSING, message=project_missing(environment))
        ctx.status.phase, ctx.status.failure = "Pending", None
        return _requeue(walls, verdict.after)

    def _never_deployed(
        self, ctx: Context[Environment], verdict: ExpiryVerdict, walls: Waiting | StepFailure | None
    ) -> Requeue | None:
        if not isinstance(walls, StepFailure):
            ctx.status.phase, ctx.status.failure = "Pending", None
            ctx.condition("Ready", False, reason="Suspended", message=SUSPENDED)
        return _requeue(walls, verdict.after)

    async def _commit(self, environment: Environment, project: Project, ctx: Context[Environment]) -> str:
        """Return the full name of the requested commit."""
        source = environment.spec.source
        requested = source.commit_sha.removesuffix("...").lower()
        if is_commit(requested):
            return requested
        seen = environment.status.seen_commit
        if seen is not None and seen.startswith(requested):
            return seen
        return await self._commits.complete(
            project.spec.source.repository_url,
            requested,
            credentials=await self._access.credentials(ctx, project),
            branch=source.branch,
            pull_request=source.pr_number,
        )

    async def _is_trusted(
        self, environment: Environment, project: Project, commit: str, ctx: Context[Environment]
    ) -> bool:
        """Return whether the commit is trusted, and record whether a branch of the repository is at it."""
        in_branch = False
        if needs_refs(environment, project, commit):
            refs = (await self._listings.containing(commit, ctx, project)).refs
            in_branch = commit in refs.branches.values()
            if not in_branch and is_undecided(environment, commit):
                credentials = await self._access.credentials(ctx, project)
                url = project.spec.source.repository_url
                in_branch = await self._commits.in_branches(url, commit, credentials=credentials)
        if environment.spec.source.pr_number is not None:
            record_trust(ctx.status, commit, in_branch=in_branch)
        return in_branch or is_trusted(environment, project, commit)

    def _visit(
        self,
        environment: Environment,
        project: Project,
        commit: str,
        ctx: Context[Environment],
        *,
        trusted: bool,
    ) -> StepRun:
        team = team_of(ctx, project)
        registry, refusal = None, ""
        if project.spec.registry is not None and project.spec.registry.name is not None:
            registry = ctx.get(Registry, project.spec.registry.name, namespace="", track=True)
        if registry is not None and (refusal := registry_refusal(registry, team)):
            registry = None
        return StepRun(
            environment=environment,
            project=project,
            ctx=ctx,
            settings=self.settings,
            metrics=self.metrics,
            commit=commit,
            trusted=trusted,
            team=team,
            registry=registry,
            registry_refusal=refusal,
        )

    # -- after them ------------------------------------------------------------------------------------------

    async def _keep_walls(
        self, environment: Environment, project: Project, ctx: Context[Environment]
    ) -> Waiting | StepFailure | None:
        """Run the steps that need no repository, for what is deployed.

        It is trusted only if that is recorded, or if it was deployed by a version that recorded nothing.
        """
        if ctx.status.namespace is None:
            return None
        commit = ctx.status.commit_sha or ctx.status.seen_commit or ""
        trusted = is_trusted(environment, project, commit) or is_undecided(environment, commit)
        visit = self._visit(environment, project, commit, ctx, trusted=trusted)
        return await enforce(self._walls, visit, before=self._steps)

    async def _stop(
        self, environment: Environment, project: Project, ctx: Context[Environment], error: ExternalError
    ) -> Requeue | None:
        """Report that the repository did not resolve the commit. What is deployed stays, within its walls."""
        outcome = from_outside(error)
        if await self._keep_walls(environment, project, ctx) is None:
            report(ctx, self._render, outcome)
        expires = ctx.status.expires_at
        left = (expires - ctx.now()).total_seconds() if expires is not None else 0.0
        # A time that has passed takes effect once the requested commit is resolved.
        return _requeue(outcome, left if left > 0 else None)

    def _finish(
        self, environment: Environment, ctx: Context[Environment], outcome: Waiting | StepFailure | None
    ) -> None:
        if outcome is None:
            ctx.status.phase = "Ready"
            where = f"serving at {ctx.status.url}" if ctx.status.url else "running"
            ctx.condition("Ready", True, reason="Ready", message=where)
            self._observe_readiness(environment, ctx)
        elif outcome.reason == "Suspended":
            ctx.status.phase = "Pending"

    def _observe_readiness(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Record how long a commit took to become ready, once per commit."""
        uid, commit, seen = environment.metadata.uid, ctx.status.seen_commit or "", ctx.status.commit_seen_at
        before = self._ready_commits.get(uid)
        # An environment that was ready before this process started has an unknown duration.
        news = environment.status.phase != "Ready" if before is None else before != commit
        if news and seen is not None:
            self.metrics.ready_seconds.observe(max(0.0, (ctx.now() - seen).total_seconds()))
        self._ready_commits[uid] = commit


def _sort_conditions(ctx: Context[Environment]) -> None:
    """Sort the conditions in the order of the steps."""
    ctx.status.conditions.sort(
        key=lambda each: _CONDITIONS.index(each.type) if each.type in _CONDITIONS else len(_CONDITIONS)
    )


def _requeue(outcome: Waiting | StepFailure | None, *others: float | None) -> Requeue | None:
    """Return when to reconcile again if nothing changes before; `others` are seconds, such as until it may expire."""
    after = outcome.after if outcome is not None else None
    due = [each for each in (after, *others) if each is not None]
    return Requeue(after=min(due)) if due else None
