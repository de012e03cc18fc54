"""Intents compared with histories: what a process that takes over does."""

from __future__ import annotations

import pytest

from kapsa.fleet.domain.rollout.releases import (
    HelmStatus,
    IntentMatch,
    ReleaseIntent,
    ReleaseRecord,
    base_record,
    latest_record,
    match_rollback,
    match_uninstall,
    match_upgrade,
)
from tests.fleet.examples import RELEASE

UPGRADE = ReleaseIntent(RELEASE, 3, "d-1", 1, "sha256:" + "a" * 64)
ROLLBACK = ReleaseIntent(RELEASE, 4, "d-1", 1, "sha256:" + "a" * 64, returns_to=2)
PENDING = [status for status in HelmStatus if status.pending]


def record(revision: int, status: HelmStatus, *, ours: bool = False, description: str = "") -> ReleaseRecord:
    return ReleaseRecord(revision, status, UPGRADE.labels if ours else {}, description)


OLD = [record(1, HelmStatus.SUPERSEDED), record(2, HelmStatus.DEPLOYED)]


def test_labels_fit_into_the_limit_of_kubernetes() -> None:
    assert all(len(value) <= 63 for value in UPGRADE.labels.values())


def test_an_upgrade_that_has_not_begun_is_done_now() -> None:
    assert match_upgrade(UPGRADE, OLD).match is IntentMatch.NOT_BEGUN
    first = ReleaseIntent(RELEASE, 1, "d-1", 1, "sha256:a")
    assert match_upgrade(first, []).match is IntentMatch.NOT_BEGUN


@pytest.mark.parametrize(
    ("status", "match"),
    [
        (HelmStatus.DEPLOYED, IntentMatch.DONE),
        (HelmStatus.FAILED, IntentMatch.FAILED),
        (HelmStatus.UNINSTALLING, IntentMatch.CHANGED),
        *((status, IntentMatch.CUT_OFF) for status in PENDING),
    ],
)
def test_our_own_revision_is_judged_by_its_status(status: HelmStatus, match: IntentMatch) -> None:
    assert match_upgrade(UPGRADE, [*OLD, record(3, status, ours=True)]).match is match


@pytest.mark.parametrize("status", HelmStatus)
def test_a_revision_of_another_client_is_never_ours(status: HelmStatus) -> None:
    assert match_upgrade(UPGRADE, [*OLD, record(3, status)]).match is IntentMatch.CHANGED


def test_the_same_deployment_with_another_attempt_is_not_ours() -> None:
    other = ReleaseRecord(
        3, HelmStatus.PENDING_UPGRADE, {**UPGRADE.labels, "fleet.kapsa-project.io/attempt": "2"}
    )
    assert match_upgrade(UPGRADE, [*OLD, other]).match is IntentMatch.CHANGED


@pytest.mark.parametrize("status", [*PENDING, HelmStatus.UNINSTALLING])
def test_the_pending_release_of_another_client_is_left_alone(status: HelmStatus) -> None:
    verdict = match_upgrade(UPGRADE, [OLD[0], record(2, status)])
    assert verdict.match is IntentMatch.BUSY
    assert status in verdict.message


def test_a_release_that_is_gone_is_a_change_by_another_client() -> None:
    assert match_upgrade(UPGRADE, []).match is IntentMatch.CHANGED
    assert match_rollback(ROLLBACK, []).match is IntentMatch.CHANGED


@pytest.mark.parametrize("status", [*PENDING, HelmStatus.FAILED, HelmStatus.DEPLOYED])
def test_a_rollback_begins_from_any_state_of_our_revision(status: HelmStatus) -> None:
    assert match_rollback(ROLLBACK, [*OLD, record(3, status, ours=True)]).match is IntentMatch.NOT_BEGUN


def test_a_rollback_waits_for_the_pending_release_of_another_client() -> None:
    assert match_rollback(ROLLBACK, [*OLD, record(3, HelmStatus.PENDING_UPGRADE)]).match is IntentMatch.BUSY


@pytest.mark.parametrize(
    ("status", "match"),
    [
        (HelmStatus.DEPLOYED, IntentMatch.DONE),
        (HelmStatus.FAILED, IntentMatch.FAILED),
        (HelmStatus.PENDING_ROLLBACK, IntentMatch.CUT_OFF),
    ],
)
def test_a_rollback_is_recognized_by_number_and_description(status: HelmStatus, match: IntentMatch) -> None:
    made = record(4, status, description="Rollback to 2")
    assert match_rollback(ROLLBACK, [*OLD, made]).match is match
    elsewhere = record(4, status, description="Rollback to 1")
    assert match_rollback(ROLLBACK, [*OLD, elsewhere]).match is IntentMatch.CHANGED


def test_a_failed_rollback_is_recognized_by_the_description_that_helm_gives_it() -> None:
    failed = record(4, HelmStatus.FAILED, description='Rollback "cert-manager" failed: timed out')
    assert match_rollback(ROLLBACK, [*OLD, failed]).match is IntentMatch.FAILED


def test_an_uninstall_is_done_when_nothing_is_left() -> None:
    intent = ReleaseIntent(RELEASE, 2, "d-1", 1, "")
    assert match_uninstall(intent, []).match is IntentMatch.DONE
    assert match_uninstall(intent, [record(2, HelmStatus.UNINSTALLED)]).match is IntentMatch.DONE
    assert match_uninstall(intent, OLD).match is IntentMatch.NOT_BEGUN
    assert match_uninstall(intent, [record(2, HelmStatus.UNINSTALLING)]).match is IntentMatch.NOT_BEGUN
    assert match_uninstall(intent, [*OLD, record(3, HelmStatus.DEPLOYED)]).match is IntentMatch.CHANGED


def test_the_latest_record_has_the_highest_revision() -> None:
    assert latest_record(list(reversed(OLD))) == OLD[1]
    assert latest_record([]) is None


FAILED_ROLLBACK = 'Rollback "cert-manager" failed: timed out'


@pytest.mark.parametrize(
    ("history", "base"),
    [
        ([], None),
        ([record(1, HelmStatus.SUPERSEDED), record(2, HelmStatus.UNINSTALLED)], None),
        ([record(1, HelmStatus.DEPLOYED), record(2, HelmStatus.FAILED)], 1),
        ([record(1, HelmStatus.FAILED)], 1),
        ([record(1, HelmStatus.SUPERSEDED), record(2, HelmStatus.FAILED)], 1),
        (
            [
                record(1, HelmStatus.SUPERSEDED),
                record(2, HelmStatus.SUPERSEDED),
                record(3, HelmStatus.FAILED, description=FAILED_ROLLBACK),
                record(4, HelmStatus.FAILED, description='Upgrade "cert-manager" failed: denied'),
            ],
            3,
        ),
    ],
)
def test_a_release_that_is_installed_always_has_a_revision_to_return_to(
    history: list[ReleaseRecord], base: int | None
) -> None:
    chosen = base_record(history, RELEASE)
    assert (chosen.revision if chosen else None) == base
