"""Approvals: four eyes, expiry, single use, scope, levels."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import (
    APPROVAL_TRANSITIONS,
    ApprovalKind,
    ApprovalPolicy,
    ApprovalState,
    check_decision,
    decided,
    granted,
    outdated,
    required_approvals,
)
from kapsa.fleet.domain.rollout.plans import CrdChange
from tests.fleet.examples import (
    ADMIN,
    DEPLOYER,
    OTHER_ADMIN,
    OWNER,
    START,
    approval,
    cluster_plan,
    rollout_plan,
)

PRODUCTION, STAGING = ClusterEnvironment.PRODUCTION, ClusterEnvironment.STAGING
BREAKING = (CrdChange("x", "breaking", ("breaking FieldRemoved spec.a",), one_way=False),)
ONE_WAY = (CrdChange("x", "warning", (), one_way=True),)


def required(*clusters, **policy):
    plan = rollout_plan(*clusters)
    return [
        (each.kind, each.environment, each.level)
        for each in required_approvals(plan, ApprovalPolicy(**policy))
    ]


def decide(request, principal, *, digest="sha256:plan", others=(), now=START):
    check_decision(request, principal, digest=digest, others=others, now=now)


def test_production_needs_an_approval_and_other_environments_do_not() -> None:
    assert required(cluster_plan("dev-1"), cluster_plan("staging-1")) == []
    assert required(cluster_plan("prod-1")) == [(ApprovalKind.PRODUCTION, PRODUCTION, 1)]


@pytest.mark.parametrize("crds", [BREAKING, ONE_WAY])
def test_a_breaking_or_one_way_change_needs_one_in_any_environment(crds) -> None:
    dev = ClusterEnvironment.DEV
    assert required(cluster_plan("dev-1", crds=crds)) == [(ApprovalKind.BREAKING_CRD, dev, 1)]


def test_the_policy_says_which_environments_and_changes_need_one() -> None:
    clusters = cluster_plan("staging-1", crds=BREAKING), cluster_plan("prod-1")
    chosen = frozenset({STAGING})
    assert required(*clusters, environments=chosen, breaking_crds=False) == [
        (ApprovalKind.ENVIRONMENT, STAGING, 1)
    ]
    assert required(*clusters, environments=frozenset(), breaking_crds=False) == []


def test_an_owner_of_another_environment_decides_for_it_alone() -> None:
    staging = approval(kind=ApprovalKind.ENVIRONMENT, environment=STAGING)
    decide(staging, ADMIN)
    with pytest.raises(NotAllowed, match="owner of Staging"):
        decide(staging, OWNER)


def test_many_clusters_of_an_environment_need_one_approval() -> None:
    assert len(required(*(cluster_plan(f"prod-{n}") for n in range(5)))) == 1


def test_levels_repeat_the_approvals_in_order() -> None:
    assert [level for _, _, level in required(cluster_plan("prod-1"), levels=2)] == [1, 2]


def test_upgrades_need_one_by_policy_and_first_installs_do_not() -> None:
    upgrade = cluster_plan("dev-1", present_version="1.0.0")
    install = cluster_plan("staging-1", present_revision=0, present_version="")
    kinds = [kind for kind, _, _ in required(upgrade, install, version_upgrades=True)]
    assert kinds == [ApprovalKind.VERSION_UPGRADE]


def test_an_owner_of_the_environment_and_an_admin_may_decide() -> None:
    decide(approval(), OWNER)
    decide(approval(), ADMIN)


@pytest.mark.parametrize("roles", [{Role.ADMIN}, set(Role)])
def test_nobody_decides_what_they_requested_whatever_their_roles(roles) -> None:
    requester = Principal("dora", frozenset(roles), frozenset(ClusterEnvironment))
    with pytest.raises(NotAllowed, match="requested"):
        decide(approval(), requester)


def test_a_person_who_retried_counts_as_requester() -> None:
    with pytest.raises(NotAllowed, match="requested"):
        decide(approval(retried_by=("ada",)), ADMIN)


@pytest.mark.parametrize("principal", [DEPLOYER, Principal("v", frozenset({Role.VIEWER}))])
def test_other_roles_may_not_decide(principal) -> None:
    with pytest.raises(NotAllowed):
        decide(approval(requested_by="x"), principal)


def test_an_owner_decides_for_the_own_environment_alone() -> None:
    with pytest.raises(NotAllowed, match="owner of Staging"):
        decide(approval(environment=STAGING), OWNER)


@pytest.mark.parametrize("kind", [ApprovalKind.BREAKING_CRD, ApprovalKind.VERSION_UPGRADE])
def test_breaking_changes_and_upgrades_are_for_admins(kind) -> None:
    with pytest.raises(NotAllowed, match="admin"):
        decide(approval(kind=kind), OWNER)
    decide(approval(kind=kind), ADMIN)


@pytest.mark.parametrize("state", [state for state in ApprovalState if state is not ApprovalState.PENDING])
def test_a_decision_is_made_once(state) -> None:
    with pytest.raises(StateConflict, match="cannot be decided again"):
        decide(approval(state=state), ADMIN)


def test_an_expired_request_and_one_for_another_plan_cannot_be_decided() -> None:
    with pytest.raises(StateConflict, match="expired"):
        decide(approval(), ADMIN, now=approval().expires_at)
    with pytest.raises(StateConflict, match="plan changed"):
        decide(approval(), ADMIN, digest="sha256:newer")


def test_level_two_waits_for_level_one_and_needs_another_person() -> None:
    second = approval(level=2)
    with pytest.raises(StateConflict, match="level 1 must be approved"):
        decide(second, ADMIN, others=[approval(level=1)])
    first = approval(level=1, state=ApprovalState.APPROVED, decided_by="ada")
    with pytest.raises(NotAllowed, match="another person"):
        decide(second, ADMIN, others=[first])
    decide(second, OTHER_ADMIN, others=[first])


def test_requests_for_an_older_plan_do_not_count_for_levels() -> None:
    stale = approval(level=1, digest="sha256:old")
    decide(approval(level=2), ADMIN, others=[stale])


def test_a_plan_may_run_when_each_approval_is_given_for_it_and_fresh() -> None:
    plan = rollout_plan(cluster_plan("prod-1", crds=BREAKING))
    needed = required_approvals(plan, ApprovalPolicy())
    given = [approval(kind=each.kind, state=ApprovalState.APPROVED) for each in needed]
    assert granted(needed, given, digest="sha256:plan", now=START)
    assert not granted(needed, given[:1], digest="sha256:plan", now=START)
    assert not granted(needed, given, digest="sha256:other", now=START)
    assert not granted(needed, given, digest="sha256:plan", now=given[0].expires_at)
    used = [decided(each, ApprovalState.USED, START) for each in given]
    assert not granted(needed, used, digest="sha256:plan", now=START)


def test_open_requests_expire_or_become_void_by_themselves() -> None:
    late = START + timedelta(days=2)
    assert outdated(approval(), digest="sha256:plan", now=START) is None
    assert outdated(approval(), digest="sha256:plan", now=late) is ApprovalState.EXPIRED
    assert outdated(approval(), digest="sha256:other", now=START) is ApprovalState.VOID
    assert outdated(approval(state=ApprovalState.USED), digest="sha256:other", now=late) is None


@pytest.mark.parametrize("before", ApprovalState)
@pytest.mark.parametrize("after", ApprovalState)
def test_only_the_listed_transitions_are_legal(before, after) -> None:
    if after in APPROVAL_TRANSITIONS[before]:
        assert decided(approval(state=before), after, START, by="ada").decided_by == "ada"
    else:
        with pytest.raises(StateConflict):
            decided(approval(state=before), after, START)
