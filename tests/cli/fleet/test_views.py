"""Rollouts as text: the evidence of gates, the waits that are left, and a view that fits the terminal."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from rich.console import Console

from kapsa.cli.fleet.people.inputs import parse_duration, parse_moment, parse_pairs
from kapsa.cli.fleet.people.windows import parse_windows
from kapsa.cli.fleet.views.crds import describe_crd
from kapsa.cli.fleet.views.live import render_deployment
from kapsa.cli.fleet.views.rollouts import evidence_text, most_telling, stage_lines, wait_text
from kapsa.cli.tables import OutputFormat, print_document
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.health import Evidence, GateProgress
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, StageTarget, stages
from kapsa.fleet.domain.rollout.targets import TargetState, TargetStep
from kapsa.fleet.orchestrator.crds.requests import CrdDetail
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails, TargetStatus
from kapsa.fleet.orchestrator.ports.crds import CrdApproval

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


def target(name: str, state: TargetState, stage: int = 1, **changes: Any) -> TargetStatus:
    """Return a cluster of a deployment."""
    status = TargetStatus(
        cluster=name,
        environment=ClusterEnvironment.DEV,
        stage=stage,
        state=state,
        step=TargetStep.VALIDATE,
        attempt=1,
        revision=2,
        previous_revision=1,
        previous_version="1.0.0",
        waits_for="",
        deadline=None,
        reason="",
        message="",
        healthy_since=None,
        failed_checks=0,
        hand_over_gap_seconds=None,
    )
    return msgspec.structs.replace(status, **changes)


def details(*clusters: TargetStatus, passed: int = 0) -> DeploymentDetails:
    """Return a deployment that validates these clusters."""
    strategy = CanaryStrategy(percentages=(10, 100), evaluation_period=timedelta(minutes=5))
    named = [StageTarget(each.cluster, each.environment) for each in clusters]
    deployment = VersionDeployment(
        id=uuid.UUID(int=7),
        operator_id=uuid.UUID(int=8),
        operator_name="widget",
        version="1.1.0",
        strategy=strategy,
        values={},
        phase=DeploymentPhase.VALIDATING,
        requested_by="ada",
        created_at=NOW - timedelta(minutes=3),
        stages=stages(strategy, named),
        stage=passed,
    )
    return DeploymentDetails(deployment, clusters)


def drawn(shown: DeploymentDetails, *, height: int, events: list[str] | None = None) -> str:
    """Return what a terminal of this height shows."""
    console = Console(file=io.StringIO(), width=150, height=height, force_terminal=True, color_system=None)
    console.print(render_deployment(shown, events or [], NOW, height=height))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_cluster_that_soaks_shows_its_evidence_and_counts_down() -> None:
    gate = GateProgress(healthy_since=NOW, healthy_checks=4, failed_checks=1, last=Evidence.HEALTHY)
    soaking = target(
        *("dev-1", TargetState.VALIDATING),
        gate=gate,
        waits_for="the end of the soak",
        deadline=NOW + timedelta(seconds=83),
    )
    text = drawn(details(soaking), height=40, events=["12:00:00  dev-1  StepChanged  Upgrade → Validate"])
    assert "healthy, 4 checks, 1 failed" in text
    assert "the end of the soak (1m23s left)" in text
    assert "stage 1 open: 1 Validating, soak 5m" in text
    assert "Upgrade → Validate" in text


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        (GateProgress(), ""),
        (
            GateProgress(failed_in_a_row=2, failed_checks=2, last=Evidence.FAILING, reason="CrashLoopBackOff", message="widget-1 crashes"),
            "failing, 2 in a row: CrashLoopBackOff: widget-1 crashes",
        ),
        (
            GateProgress(unknown_since=NOW, reason="Unreachable", message="no answer"),
            "unknown: Unreachable: no answer",
        ),
    ],
    ids=["no check yet", "failing", "unknown"],
)  # fmt: skip
def test_the_evidence_of_a_gate_is_one_clause(gate: GateProgress, text: str) -> None:
    assert evidence_text(target("dev", TargetState.VALIDATING, gate=gate)) == text


@pytest.mark.parametrize(
    "state",
    [
        TargetState.ABORTED,
        TargetState.FAILED,
        TargetState.ROLLED_BACK,
        TargetState.SKIPPED,
        TargetState.APPLYING,
    ],
)
def test_a_cluster_that_ended_or_gave_up_shows_the_word_that_runbooks_have(state: TargetState) -> None:
    stopped = target("dev", state, reason="ReleaseBusy", message="revision 4 is pending-upgrade")
    assert evidence_text(stopped) == "ReleaseBusy: revision 4 is pending-upgrade"
    assert evidence_text(target("dev", state, reason="Offline")) == "Offline"


def test_a_cluster_that_waits_shows_its_wait_and_no_earlier_reason() -> None:
    waiting = target("dev", TargetState.APPLYING, reason="ReleaseBusy", message="busy", waits_for="the CRDs")
    assert evidence_text(waiting) == ""


def test_a_wait_that_is_over_is_due_and_one_without_an_end_has_none() -> None:
    assert wait_text("a window", NOW - timedelta(seconds=1), NOW) == "a window (due)"
    assert wait_text("an approval", None, NOW) == "an approval"


def test_a_thousand_clusters_fit_the_terminal_and_the_failed_ones_are_seen() -> None:
    clusters = [target(f"c-{number:04}", TargetState.PENDING, stage=2) for number in range(998)]
    clusters += [
        target("bad", TargetState.FAILED, reason="OOMKilled", message="widget-1"),
        target("ok", TargetState.HEALTHY),
    ]
    text = drawn(details(*clusters), height=30)
    assert len(text.splitlines()) <= 30
    assert "OOMKilled: widget-1" in text
    shown, others = most_telling(clusters, 10)
    assert (len(shown), shown[0].cluster) == (9, "bad")
    assert others == "and 991 more: 990 Pending, 1 Healthy"


def test_a_passed_stage_is_marked() -> None:
    lines = list(
        stage_lines(details(target("a", TargetState.HEALTHY), target("b", TargetState.PENDING, 2), passed=1))
    )
    assert lines == ["stage 1 passed: 1 Healthy, soak 5m", "stage 2 open: 1 Pending, soak 5m"]


def test_an_escape_sequence_in_a_message_of_a_cluster_is_drawn_as_text() -> None:
    hostile = target("dev", TargetState.FAILED, reason="x", message="\x1b[2J\x1b]0;owned\x07 [red]")
    text = drawn(details(hostile), height=40)
    assert "\x1b" not in text
    assert r"\x1b[2J" in text
    assert "[red]" in text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("PT5M", 300), ("0s", 0)]
)
def test_a_time_span_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_duration("--soak", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5 minutes", "m5", "P1Y"])
def test_a_time_span_that_means_nothing_is_refused_with_examples(text: str) -> None:
    with pytest.raises(TargetError, match="90s, 5m, 1h30m or 2d"):
        parse_duration("--soak", text)


def test_a_moment_is_a_time_with_a_zone_or_a_span_from_now() -> None:
    assert parse_moment("--until", "3d", NOW) == NOW + timedelta(days=3)
    assert parse_moment("--until", "2027-01-02T08:00:00Z", NOW) == datetime(2027, 1, 2, 8, tzinfo=UTC)
    with pytest.raises(TargetError, match="use one with a zone"):
        parse_moment("--until", "2027-01-02T08:00:00", NOW)


@pytest.mark.parametrize(
    "text", ["Tuesday 22:00", "Someday 22:00 4h", "T 22:00 4h", "Tue 25:00 4h", "Tue 22:00 long"]
)
def test_a_window_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="--window"):
        parse_windows([text])


def test_a_label_without_a_value_is_refused() -> None:
    with pytest.raises(TargetError, match="use --label key=value"):
        parse_pairs("--label", ["region"])


def test_json_has_control_characters_as_escapes_and_means_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"name": "a\x9b31m\x1b[0m\x7fé"}
    print_document(value, OutputFormat.JSON)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert "é" in printed
    assert json.loads(printed) == value


def test_the_version_of_an_approval_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    approval = CrdApproval(uuid.UUID(int=1), "1\x9b31m", "widgets", "", "sha256:1", "ada", NOW, "fine")
    describe_crd(CrdDetail("widgets", (), (), (approval,)))
    printed = capsys.readouterr().out
    assert "approved: 1\\x9b31m by ada" in printed
    assert printed.replace("\n", "").isprintable()
