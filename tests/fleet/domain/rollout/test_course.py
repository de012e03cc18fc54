"""The course of a rollout: turns, gates, lateness, pauses, aborts and rollbacks."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.course import RolloutCourse, steer
from kapsa.fleet.domain.rollout.deployments import PHASE_TRANSITIONS, DeploymentPhase, check_phase
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
    RolloutStrategy,
    StageTarget,
    stages,
)
from kapsa.fleet.domain.rollout.targets import (
    STEP_STATES,
    STEP_TRANSITIONS,
    RolloutTarget,
    TargetGoal,
    TargetState,
    TargetStep,
    check_step,
)
from tests.fleet.examples import START, deployment, target

NAMES = ["dev-1", "dev-2", "staging-1", *(f"prod-{number}" for number in range(7))]
HEALTHY = GateProgress(healthy_since=START)


class Rollout:
    """A deployment whose clusters a test moves by hand."""

    def __init__(self, strategy: RolloutStrategy | None = None, names: list[str] | None = None) -> None:
        strategy = strategy or CanaryStrategy()
        targets = [target(name) for name in names or NAMES]
        planned = stages(strategy, [StageTarget(each.cluster_name, each.environment) for each in targets])
        number = {name: stage.number for stage in planned for name in stage.clusters}
        self.deployment = deployment(strategy=strategy, stages=planned)
        self.targets = {
            each.cluster_name: msgspec.structs.replace(each, stage=number[each.cluster_name])
            for each in targets
        }
        self.now = START

    def steer(self) -> RolloutCourse:
        course = steer(self.deployment, list(self.targets.values()), self.now)
        check_phase(self.deployment.phase, course.deployment.phase)
        self.deployment = course.deployment
        for each in course.targets.values():
            check_step(self.targets[each.cluster_name].step, each.step)
            self.targets[each.cluster_name] = each
        return course

    def set(self, name: str, **changes: Any) -> None:
        self.targets[name] = msgspec.structs.replace(self.targets[name], **changes)

    def pass_gate(self, *names: str) -> None:
        for name in names:
            self.set(name, step=TargetStep.WATCH, progress=HEALTHY, base_revision=1)

    def begun(self) -> set[str]:
        return {name for name, each in self.targets.items() if each.goal is TargetGoal.APPLY}


def test_the_first_stage_begins_alone() -> None:
    rollout = Rollout()
    rollout.steer()
    assert rollout.begun() == {"dev-1"}


def test_the_next_stage_begins_when_the_gate_has_passed() -> None:
    rollout = Rollout()
    rollout.steer()
    rollout.set("dev-1", step=TargetStep.VALIDATE, progress=HEALTHY)
    rollout.steer()
    assert rollout.begun() == {"dev-1"}
    assert (rollout.deployment.phase, rollout.deployment.waits_for) == (
        DeploymentPhase.VALIDATING,
        "the health of dev-1",
    )
    rollout.pass_gate("dev-1")
    rollout.steer()
    assert rollout.begun() == {"dev-1", "dev-2", "staging-1"}


def test_a_stage_bounds_its_clusters_until_their_first_healthy_check() -> None:
    rollout = Rollout(DirectStrategy(parallel_clusters=2))
    rollout.steer()
    assert len(rollout.begun()) == 2
    rollout.steer()
    assert len(rollout.begun()) == 2
    rollout.set("dev-1", step=TargetStep.VALIDATE, progress=HEALTHY)
    rollout.steer()
    assert len(rollout.begun()) == 3


def test_all_gates_passed_complete_the_deployment() -> None:
    rollout = Rollout(DirectStrategy())
    rollout.steer()
    rollout.pass_gate(*NAMES)
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.COMPLETED
    assert rollout.deployment.finished_at == START
    assert {each.step for each in rollout.targets.values()} == {TargetStep.DONE}


def test_deciding_twice_changes_nothing_more() -> None:
    rollout = Rollout()
    rollout.steer()
    assert rollout.steer().targets == {}


def test_rolling_pauses_between_clusters_and_names_the_end_of_the_pause() -> None:
    rollout = Rollout(RollingStrategy(), ["dev-1", "dev-2"])
    rollout.steer()
    rollout.pass_gate("dev-1")
    course = rollout.steer()
    end = START + timedelta(minutes=2)
    assert (course.next_run_at, rollout.deployment.deadline) == (end, end)
    assert rollout.begun() == {"dev-1"}
    rollout.now = end
    rollout.steer()
    assert rollout.begun() == {"dev-1", "dev-2"}


def test_a_failed_cluster_turns_the_whole_deployment_back_finished_stages_too() -> None:
    rollout = Rollout()
    rollout.steer()
    rollout.pass_gate("dev-1")
    rollout.steer()
    rollout.set(
        "dev-2", step=TargetStep.FAILED, base_revision=1, reason="CrashLoopBackOff", message="pod x crashes"
    )
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.ROLLING_BACK
    assert rollout.deployment.message == "dev-2: pod x crashes"
    assert {each.goal for each in rollout.targets.values()} == {TargetGoal.ROLL_BACK}


@pytest.mark.parametrize(
    ("end", "phase"),
    [
        (TargetStep.ROLLED_BACK, DeploymentPhase.ROLLED_BACK),
        (TargetStep.ROLLBACK_FAILED, DeploymentPhase.FAILED),
    ],
)
def test_a_rollback_ends_when_every_cluster_has(end: TargetStep, phase: DeploymentPhase) -> None:
    rollout = Rollout()
    rollout.deployment = deployment(phase=DeploymentPhase.ROLLING_BACK)
    for name in NAMES[1:]:
        rollout.set(name, step=TargetStep.SKIPPED)
    rollout.set("dev-1", step=TargetStep.REVERT, goal=TargetGoal.ROLL_BACK)
    rollout.steer()
    assert rollout.deployment.waits_for == "the rollback of dev-1"
    rollout.set("dev-1", step=end)
    rollout.steer()
    assert rollout.deployment.phase is phase


def test_a_failure_during_a_pause_still_turns_back() -> None:
    rollout = Rollout()
    rollout.deployment = deployment(phase=DeploymentPhase.PAUSED)
    rollout.set("dev-1", step=TargetStep.FAILED)
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.ROLLING_BACK


def test_a_pause_begins_nothing() -> None:
    rollout = Rollout()
    rollout.deployment = deployment(phase=DeploymentPhase.PAUSED)
    rollout.steer()
    assert rollout.begun() == set()


def test_a_wait_that_gave_up_pauses_and_says_why() -> None:
    rollout = Rollout()
    rollout.steer()
    rollout.set("dev-1", stalled="no evidence for 15 minutes")
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.PAUSED
    assert rollout.deployment.message == "dev-1: no evidence for 15 minutes"


def test_an_offline_cluster_stops_no_other_and_is_awaited_at_the_end() -> None:
    rollout = Rollout(RollingStrategy(pause_between_clusters=timedelta()), ["dev-1", "dev-2"])
    rollout.steer()
    rollout.set("dev-1", offline_since=START, deadline=START + timedelta(hours=1))
    rollout.steer()
    assert rollout.begun() == {"dev-1", "dev-2"}
    rollout.pass_gate("dev-2")
    rollout.steer()
    assert rollout.deployment.waits_for == "dev-1 to come back online"
    assert rollout.deployment.deadline == START + timedelta(hours=1)
    rollout.set("dev-1", step=TargetStep.UPGRADE, offline_since=None)
    rollout.steer()
    assert rollout.deployment.waits_for == "the health of dev-1"
    rollout.pass_gate("dev-1")
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.COMPLETED


def test_a_late_cluster_that_a_pause_held_begins_again_although_its_stage_has_passed() -> None:
    rollout = Rollout(RollingStrategy(pause_between_clusters=timedelta()), ["dev-1", "dev-2"])
    rollout.steer()
    rollout.set("dev-1", offline_since=START)
    rollout.steer()
    rollout.set("dev-1", step=TargetStep.WAIT, goal=TargetGoal.HOLD, offline_since=None)
    assert rollout.steer().next_run_at == START
    assert (rollout.targets["dev-1"].step, rollout.targets["dev-1"].goal) == (
        TargetStep.PREPARE,
        TargetGoal.APPLY,
    )
    rollout.pass_gate("dev-2")
    rollout.steer()
    assert rollout.deployment.waits_for == "the health of dev-1"


def test_without_any_evidence_later_stages_try_one_cluster_at_a_time() -> None:
    rollout = Rollout()
    rollout.steer()
    rollout.set("dev-1", step=TargetStep.SKIPPED, offline_since=START)
    rollout.steer()
    assert rollout.begun() - {"dev-1"} == {"dev-2"}


def test_an_abort_lets_acts_end_and_leaves_the_rest() -> None:
    rollout = Rollout(DirectStrategy(parallel_clusters=3))
    rollout.steer()
    rollout.set("dev-1", step=TargetStep.UPGRADE, base_revision=1)
    rollout.set("dev-2", step=TargetStep.VALIDATE, base_revision=1)
    rollout.pass_gate("staging-1")
    rollout.deployment = msgspec.structs.replace(rollout.deployment, abort_requested=True)
    rollout.steer()
    assert rollout.deployment.phase is DeploymentPhase.DEPLOYING
    assert rollout.deployment.waits_for == "the acts under way on dev-1 to end"
    rollout.set("dev-1", step=TargetStep.VALIDATE)
    rollout.steer()
    states = {name: each.state for name, each in rollout.targets.items()}
    assert rollout.deployment.phase is DeploymentPhase.ABORTED
    assert states["dev-1"] is states["dev-2"] is TargetState.ABORTED
    assert (states["staging-1"], states["prod-0"]) == (TargetState.HEALTHY, TargetState.SKIPPED)


def test_blue_is_retained_after_the_deployment_completes() -> None:
    rollout = Rollout(BlueGreenStrategy("blue", "green"), ["dev-1"])
    rollout.set("dev-1", next=ReleaseRef("cert-manager", "green"))
    rollout.steer()
    retire_at = START + timedelta(hours=24)
    rollout.pass_gate("dev-1")
    rollout.set("dev-1", retire_at=retire_at)
    rollout.steer()
    kept = rollout.targets["dev-1"]
    assert (kept.step, kept.next_run_at) == (TargetStep.RETAIN_LIVE, retire_at)
    assert rollout.deployment.phase is DeploymentPhase.COMPLETED


def test_many_clusters_are_named_in_few_words() -> None:
    rollout = Rollout(DirectStrategy(parallel_clusters=10))
    rollout.steer()
    for name in NAMES:
        rollout.set(name, step=TargetStep.VALIDATE)
    rollout.steer()
    assert rollout.deployment.waits_for.endswith("and 5 more")


@pytest.mark.parametrize(
    "phase", [DeploymentPhase.PLANNING, DeploymentPhase.REJECTED, DeploymentPhase.COMPLETED]
)
def test_other_phases_are_left_alone(phase: DeploymentPhase) -> None:
    rollout = Rollout()
    rollout.deployment = deployment(phase=phase)
    assert rollout.steer().targets == {}


def test_every_phase_and_step_is_in_its_table() -> None:
    assert set(PHASE_TRANSITIONS) == set(DeploymentPhase)
    assert set(STEP_TRANSITIONS) == set(STEP_STATES) == set(TargetStep)


def test_every_step_can_be_reached_and_every_cluster_can_end() -> None:
    reached, queue = {TargetStep.WAIT}, deque([TargetStep.WAIT])
    while queue:
        for after in STEP_TRANSITIONS[queue.popleft()] - reached:
            reached.add(after)
            queue.append(after)
    assert reached == set(TargetStep)


def test_a_rejected_deployment_never_runs() -> None:
    for phase in DeploymentPhase:
        if phase is not DeploymentPhase.REJECTED:
            with pytest.raises(StateConflict):
                check_phase(DeploymentPhase.REJECTED, phase)


@pytest.mark.parametrize(
    ("before", "after"),
    [(TargetStep.WAIT, TargetStep.UPGRADE), (TargetStep.RETIRE_LIVE, TargetStep.REMOVE)],
)
def test_a_step_that_is_not_in_the_table_is_refused(before: TargetStep, after: TargetStep) -> None:
    with pytest.raises(StateConflict, match=f"{before} cannot go to {after}"):
        check_step(before, after)


def test_staying_is_legal() -> None:
    check_step(TargetStep.VALIDATE, TargetStep.VALIDATE)
    check_phase(DeploymentPhase.REJECTED, DeploymentPhase.REJECTED)


def test_a_cluster_knows_its_state_and_whether_it_was_changed() -> None:
    each: RolloutTarget = target(base_revision=0, step=TargetStep.VALIDATE)
    assert (each.changed, each.state, each.blue_green) == (True, TargetState.VALIDATING, False)
    assert not target().changed
