"""Use cases of deployments and approvals: who may do what, when, and what is recorded of it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import ApprovalKind, ApprovalPolicy, ApprovalState
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, DeploymentPhase, OfflinePolicy
from kapsa.fleet.domain.rollout.plans import CrdChange, FieldConflict, LiveVerdict, PreflightProblem
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
)
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector, DeploymentRequest, StrategyName
from tests.fleet.database_text import database_text
from tests.fleet.examples import ADMIN, DEPLOYER, OTHER_ADMIN, OWNER
from tests.fleet.rollout_harness import RELEASE, RolloutHarness

CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=timedelta(seconds=30))
VIEWER = Principal("vera", frozenset({Role.VIEWER}))
NOBODY = Principal("nick", frozenset())
PLANTED = "hunter2-planted"


async def started(database: Database, *names: str, policy: ApprovalPolicy | None = None) -> RolloutHarness:
    fleet = RolloutHarness(database, *names, policy=policy)
    await fleet.register()
    return fleet


async def requests(fleet: RolloutHarness, made: Any) -> list[Any]:
    async with fleet.database.transaction() as connection:
        return await fleet.approval_rows.of(connection, made.id)


# Requests


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"operator": "nothing"}, "/operator"),
        ({"version": "9.9.9"}, "/version"),
        ({"targets": ClusterSelector(("nowhere",))}, "/targets/clusters"),
        ({"targets": ClusterSelector()}, "/targets"),
        ({"targets": ClusterSelector(labels={"tier": "none"})}, "/targets"),
        ({"direct_config": DirectStrategy()}, "/directConfig"),
        ({"strategy": StrategyName.BLUE_GREEN, "canary_config": None}, "/blueGreenConfig"),
        ({"canary_config": CanaryStrategy(percentages=(9, 3))}, "/canaryConfig/percentages"),
        ({"values": {"x": "y" * 600_000}}, "/values"),
    ],
)
async def test_a_request_that_cannot_work_is_refused_by_its_field(
    database: Database, changes: Any, path: str
) -> None:
    fleet = await started(database, "dev-1")
    with pytest.raises(InvalidInput) as refused:
        await fleet.create(CANARY, **changes)
    assert [field.path for field in refused.value.fields] == [path]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (ClusterSelector(environment=ClusterEnvironment.STAGING), ["staging-1"]),
        (ClusterSelector(labels={"tier": "1"}), ["dev-1", "staging-1"]),
        (ClusterSelector(("dev-1", "dev-2"), labels={"tier": "2"}), ["dev-2"]),
    ],
)
async def test_clusters_are_selected_by_name_environment_and_labels(
    database: Database, selector: Any, expected: Any
) -> None:
    fleet = await started(database, "dev-1", "dev-2", "staging-1")
    made = await fleet.create(CANARY, targets=selector)
    assert sorted(await fleet.targets(made.id)) == expected


async def test_direct_is_refused_in_production_unless_an_admin_forces_it(database: Database) -> None:
    fleet = await started(database, "prod-1")
    with pytest.raises(InvalidInput, match="Direct is refused in Production"):
        await fleet.create(DirectStrategy())
    with pytest.raises(NotAllowed):
        await fleet.create(DirectStrategy(), force_reason="x")
    await fleet.create(DirectStrategy(), by=ADMIN, force_reason="the API is down")


async def test_a_paused_operator_is_not_deployed(database: Database) -> None:
    fleet = await started(database, "dev-1")
    operators = PostgresOperators()
    async with database.transaction() as connection:
        operator = await operators.get(connection, RELEASE.name)
        paused = msgspec.structs.replace(operator, paused_reason="audit", version=2)
        assert await operators.update(connection, paused, expected=1)
    with pytest.raises(StateConflict, match="paused: audit"):
        await fleet.create(CANARY)


@pytest.mark.parametrize("principal", [VIEWER, OWNER, NOBODY])
async def test_only_operators_and_admins_change_deployments(database: Database, principal: Principal) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    use = fleet.deployments
    acts = [
        fleet.create(CANARY, by=principal),
        use.abort(principal, made.id),
        use.pause(principal, made.id),
        use.resume(principal, made.id),
        use.retry(principal, made.id),
        use.switch(principal, made.id),
        use.rollback(principal, made.id, reason="x"),
    ]
    for act in acts:
        with pytest.raises(NotAllowed):
            await act


async def test_every_role_may_look_and_nobody_without_one(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    use = fleet.deployments
    for principal in (VIEWER, OWNER, DEPLOYER, ADMIN):
        assert (await use.get(principal, made.id)).deployment.id == made.id
        assert (await use.page(principal)).items[0].id == made.id
        assert await use.events(principal, made.id)
        assert (await use.plan(principal, made.id)).digest.startswith("sha256:")
        assert (await fleet.approvals.page(principal)).items == ()
    for look in (
        use.get(NOBODY, made.id),
        use.page(NOBODY),
        use.events(NOBODY, made.id),
        fleet.approvals.page(NOBODY),
    ):
        with pytest.raises(NotAllowed):
            await look


async def test_an_unknown_id_is_unknown(database: Database) -> None:
    fleet = await started(database, "dev-1")
    nothing = uuid.uuid4()
    use = fleet.deployments
    acts = [
        use.get(VIEWER, nothing),
        use.abort(ADMIN, nothing),
        use.events(VIEWER, nothing),
        use.plan(VIEWER, nothing),
    ]
    for act in [*acts, use.rollback(ADMIN, nothing, reason="x"), fleet.approvals.approve(ADMIN, nothing)]:
        with pytest.raises(UnknownObject):
            await act


async def test_every_change_leaves_an_audit_entry(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.pause(DEPLOYER, made.id)
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    await fleet.deployments.rollback(ADMIN, made.id, reason="x")
    verbs = ["create", "pause", "resume", "abort", "rollback"]
    assert fleet.audit.actions() == [f"deployment.{verb}" for verb in verbs]
    assert {entry.object_id for entry in fleet.audit.entries} == {str(made.id)}


@pytest.mark.parametrize("verb", ["pause", "resume", "retry", "switch"])
async def test_a_change_that_the_phase_does_not_permit_is_a_conflict(database: Database, verb: str) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    with pytest.raises(StateConflict):
        await getattr(fleet.deployments, verb)(DEPLOYER, made.id)
    with pytest.raises(StateConflict):
        await fleet.deployments.rollback(ADMIN, made.id, reason="nothing has changed yet")
    with pytest.raises(UnknownObject):
        await fleet.deployments.rollback_status(VIEWER, made.id)
    with pytest.raises(StateConflict, match="no plan yet"):
        await fleet.deployments.plan(VIEWER, made.id)


async def test_a_rollback_needs_a_reason(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    with pytest.raises(InvalidInput):
        await fleet.deployments.rollback(ADMIN, made.id, reason=" ")


async def test_deployments_are_paged_newest_first_and_filtered(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    made = []
    for name in ("dev-1", "dev-2", "dev-3"):
        made.append((await fleet.create(CANARY, targets=ClusterSelector((name,)))).id)
        fleet.set_time(fleet.now + timedelta(seconds=1))
    await fleet.deployments.abort(DEPLOYER, made[0])
    seen, cursor = [], ""
    while True:
        page = await fleet.deployments.page(VIEWER, cursor=cursor, limit=2)
        seen += [each.id for each in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert seen == made[::-1]
    aborted = await fleet.deployments.page(VIEWER, phases=[DeploymentPhase.ABORTED])
    assert [each.id for each in aborted.items] == made[:1]
    assert not (await fleet.deployments.page(VIEWER, operator="other")).items
    for cursor in (
        "x",
        "WyJhIiwiYiJd",
        "WyIyMDI3LTAxLTA0IiwiMDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDA3Il0",
    ):
        with pytest.raises(InvalidInput):
            await fleet.deployments.page(VIEWER, cursor=cursor)


async def test_history_continues_after_the_last_event_that_was_seen(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.run()
    events = await fleet.deployments.events(VIEWER, made.id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].message == "Validating → Completed"
    rest = await fleet.deployments.events(VIEWER, made.id, after=events[2].sequence, limit=2)
    assert rest == events[3:5]


# Plans


async def test_a_dry_run_makes_the_plan_that_the_deployment_then_has_and_changes_nothing(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "prod-1")
    request = DeploymentRequest(
        RELEASE.name, "2.0.0", ClusterSelector(("dev-1", "prod-1")), StrategyName.CANARY, canary_config=CANARY
    )
    preview = await fleet.deployments.preview(DEPLOYER, request)
    assert [stage.clusters for stage in preview.plan.stages] == [("dev-1",), ("prod-1",)]
    assert [each.kind for each in preview.required_approvals] == [ApprovalKind.PRODUCTION]
    assert not (await fleet.deployments.page(VIEWER)).items
    assert fleet.clusters["dev-1"].completed == []


async def test_a_plan_with_problems_fails_and_names_them(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.sources.report = {"problems": (PreflightProblem("Rights", "may not create ClusterRoles"),)}
    made = await fleet.create(CANARY)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert deployment.message == "the plan cannot be carried out: dev-1: may not create ClusterRoles"
    fleet.sources.report = {}
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


@pytest.mark.parametrize("policy", ConflictPolicy)
async def test_conflicts_fail_a_plan_unless_the_policy_answers_them(
    database: Database, policy: ConflictPolicy
) -> None:
    fleet = await started(database, "dev-1")
    fleet.sources.report = {"conflicts": (FieldConflict("Deployment/x", "spec.replicas", "kubectl"),)}
    made = await fleet.create(CANARY, on_conflict=policy)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    if policy is ConflictPolicy.FAIL:
        assert "spec.replicas of Deployment/x is owned by kubectl" in deployment.message
    else:
        assert deployment.phase is DeploymentPhase.COMPLETED


async def test_a_plan_waits_for_an_offline_cluster_and_then_fails(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    fleet.clusters["dev-2"].offline = True
    made = await fleet.create(CANARY)
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    assert "dev-2 does not answer" in deployment.waits_for
    assert deployment.deadline is not None
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.FAILED
    fleet.clusters["dev-2"].offline = True
    skipping = await fleet.create(
        RollingStrategy(cluster_order=("dev-2", "dev-1")), on_offline=OfflinePolicy.SKIP
    )
    await fleet.run()
    assert (await fleet.deployment(skipping.id)).phase is DeploymentPhase.COMPLETED
    assert (await fleet.deployments.plan(VIEWER, skipping.id)).plan.skipped == ("dev-2",)


async def test_secret_values_are_sealed_masked_and_reach_helm(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY, values={"user": "app"}, secret_values={"password": PLANTED})
    await fleet.run()
    plan = await fleet.deployments.plan(VIEWER, made.id)
    assert plan.plan.clusters[0].values == {"user": "app", "password": "••••••"}
    shown = msgspec.json.encode([plan, await fleet.deployments.get(VIEWER, made.id)])
    assert PLANTED.encode() not in shown
    stored = await database_text(database)
    assert str(made.id) in stored
    assert PLANTED not in stored
    bundle = await fleet.bundle(made.id, plan.plan.clusters[0].cluster_id)
    assert bundle.values["password"] == PLANTED


# Approvals


async def test_a_production_deployment_waits_for_approval_and_mail_goes_out(database: Database) -> None:
    fleet = await started(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.AWAITING_APPROVAL
    assert deployment.waits_for == "approval of ProductionDeployment in Production"
    assert fleet.clusters["prod-1"].completed == []
    (mail,) = fleet.outbox.mails
    assert mail.to == ("owners@example.com",)
    assert deployment.plan_digest in mail.text
    assert [event.type for event in fleet.outbox.events] == ["approval.requested"]
    (request,) = (await fleet.approvals.page(OWNER)).items
    await fleet.approvals.approve(OWNER, request.id, comment="fine")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert [each.state for each in await requests(fleet, made)] == [ApprovalState.USED]
    assert fleet.audit.actions()[-1] == "approval.approve"
    assert [event.type for event in fleet.outbox.events] == ["approval.requested", "deployment.completed"]


async def test_a_rejected_deployment_never_runs(database: Database) -> None:
    fleet = await started(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    (request,) = await requests(fleet, made)
    await fleet.approvals.reject(OWNER, request.id, comment="not today")
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert (deployment.phase, deployment.message) == (DeploymentPhase.REJECTED, "rejected by olga: not today")
    assert fleet.clusters["prod-1"].completed == []
    with pytest.raises(StateConflict):
        await fleet.deployments.retry(DEPLOYER, made.id)
    with pytest.raises(StateConflict):
        await fleet.approvals.approve(ADMIN, request.id)
    await fleet.create(CANARY)


async def test_an_approval_that_expires_fails_the_deployment_and_a_retry_asks_again(
    database: Database,
) -> None:
    fleet = await started(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.FAILED
    assert [each.state for each in await requests(fleet, made)] == [ApprovalState.EXPIRED]
    await fleet.deployments.retry(ADMIN, made.id)
    await fleet.settle()
    fresh = (await requests(fleet, made))[-1]
    with pytest.raises(NotAllowed, match="requested"):
        await fleet.approvals.approve(ADMIN, fresh.id)  # who retries counts as a requester
    await fleet.approvals.approve(OTHER_ADMIN, fresh.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_changed_value_voids_the_approval_and_asks_again(database: Database) -> None:
    fleet = await started(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.sources.values = {"replicas": 3}
    await fleet.approve_all(made.id)
    await fleet.settle()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.AWAITING_APPROVAL
    # Both were requested at the same moment of virtual time, so that they have no order.
    states = {each.state for each in await requests(fleet, made)}
    assert states == {ApprovalState.VOID, ApprovalState.PENDING}
    assert fleet.clusters["prod-1"].completed == []
    await fleet.approve_all(made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


@pytest.mark.parametrize(
    ("later", "voided"),
    [(LiveVerdict("x", 99, 3), False), (LiveVerdict("x", 9, 0), True), (LiveVerdict("x", 9, 9), True)],
    ids=["another count", "none rejected", "all rejected"],
)
async def test_a_changed_class_of_a_verdict_voids_the_approval_and_a_count_does_not(
    database: Database, later: LiveVerdict, voided: bool
) -> None:
    fleet = await started(database, "prod-1")
    change = CrdChange("x", "breaking", ("breaking FieldRemoved spec.a",), one_way=False)
    fleet.sources.report = {"crds": (change,), "verdicts": (LiveVerdict("x", 9, 3),)}
    made = await fleet.create(CANARY)
    await fleet.settle()
    kinds = {each.kind for each in await requests(fleet, made)}
    assert kinds == {ApprovalKind.PRODUCTION, ApprovalKind.BREAKING_CRD}
    fleet.sources.report = {"crds": (change,), "verdicts": (later,)}
    await fleet.approve_all(made.id)
    await fleet.settle()
    waits = (await fleet.deployment(made.id)).phase is DeploymentPhase.AWAITING_APPROVAL
    assert waits is voided
    assert fleet.sources.renders == 1  # a certificate that is made at each render does not void an approval


async def test_two_levels_need_two_people_in_order(database: Database) -> None:
    fleet = await started(database, "prod-1", policy=ApprovalPolicy(levels=2))
    made = await fleet.create(CANARY)
    await fleet.settle()
    first, second = sorted(await requests(fleet, made), key=lambda each: each.level)
    with pytest.raises(StateConflict, match="level 1 must be approved"):
        await fleet.approvals.approve(OWNER, second.id)
    await fleet.approvals.approve(OWNER, first.id)
    with pytest.raises(NotAllowed, match="another person"):
        await fleet.approvals.approve(OWNER, second.id)
    await fleet.settle()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.AWAITING_APPROVAL
    await fleet.approvals.approve(ADMIN, second.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_an_aborted_deployment_voids_its_approvals(database: Database) -> None:
    fleet = await started(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.abort(DEPLOYER, made.id)
    (request,) = await requests(fleet, made)
    assert request.state is ApprovalState.VOID
    assert (await fleet.approvals.page(OWNER)).items == ()
    listed = await fleet.approvals.page(OWNER, states=[ApprovalState.VOID], limit=1)
    assert [each.id for each in listed.items] == [request.id]
    with pytest.raises(StateConflict):
        await fleet.approvals.approve(OWNER, request.id)


async def test_blue_green_settings_come_with_the_request(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BlueGreenStrategy("blue", "green"))
    assert made.strategy == BlueGreenStrategy("blue", "green")
    with pytest.raises(StateConflict, match="cannot be switched"):
        await fleet.deployments.switch(DEPLOYER, made.id)
