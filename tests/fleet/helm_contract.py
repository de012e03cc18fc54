"""The contract of Helm's states, which the double and the real Helm both keep.

A `HelmUnderTest` brings an implementation of the port with an empty cluster, and ways to kill Helm half-way and to
have a release that the cluster does not accept. Each case is a function of it; `CONTRACT` has them all.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import pytest

from kapsa.fleet.domain.rollout.releases import (
    HelmStatus,
    ReleaseIntent,
    ReleaseRecord,
    ReleaseRef,
    is_rollback,
    latest_record,
)
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmRefused, HelmReleases, UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost

__all__ = ["CONTRACT", "LABELS", "QUICK", "ContractCase", "HelmUnderTest"]

LABELS = ReleaseIntent(ReleaseRef("contract", ""), 1, "deployment-1", 1, "sha256:" + "a" * 64).labels
BUSY = (429, 503, 504)
HELD = LeaseGuard(60.0, lambda: 0.0)
LAPSED = LeaseGuard(0.0, lambda: 0.0)


class HelmUnderTest(Protocol):
    """An implementation of the port, and a cluster of its own."""

    releases: HelmReleases
    cluster_id: uuid.UUID
    contract_release: ReleaseRef

    def contract_request(self, *, broken: bool = False) -> UpgradeRequest:
        """Return a request with the labels of the contract; a broken one is rejected by the API server."""
        ...

    async def killed(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Run an act, and kill Helm after its first write to the history."""
        ...

    async def rejected(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Run an act while the API server rejects the objects of the release. Raises what the act raises."""
        ...

    async def busy(self, status: int, act: Callable[[], Awaitable[Any]]) -> None:
        """Run an act while each write but those to the history gets a busy status. Raises what the act raises."""
        ...


ContractCase = Callable[[HelmUnderTest], Awaitable[None]]
CONTRACT: dict[str, ContractCase] = {}
QUICK: list[str] = []
"""The cases that a quick run tries with the real Helm, which takes half a second each time it runs."""


def case(function: ContractCase) -> ContractCase:
    """Add a function to the contract."""
    CONTRACT[function.__name__] = function
    return function


def quick_case(function: ContractCase) -> ContractCase:
    """Add a function to the contract, and to its quick part."""
    QUICK.append(function.__name__)
    return case(function)


async def upgrade(helm: HelmUnderTest, *, broken: bool = False, guard: LeaseGuard = HELD) -> int:
    return await helm.releases.upgrade(helm.contract_request(broken=broken), guard)


async def statuses(helm: HelmUnderTest) -> list[tuple[int, HelmStatus]]:
    history = await helm.releases.history(helm.cluster_id, helm.contract_release)
    return [(record.revision, record.status) for record in sorted(history, key=lambda each: each.revision)]


async def latest(helm: HelmUnderTest) -> ReleaseRecord:
    record = latest_record(await helm.releases.history(helm.cluster_id, helm.contract_release))
    assert record is not None
    return record


async def roll_back(helm: HelmUnderTest, revision: int, guard: LeaseGuard = HELD) -> int:
    return await helm.releases.rollback(helm.cluster_id, helm.contract_release, revision, guard)


async def uninstall(helm: HelmUnderTest, guard: LeaseGuard = HELD) -> None:
    await helm.releases.uninstall(helm.cluster_id, helm.contract_release, guard)


async def remove_pending(helm: HelmUnderTest, record: ReleaseRecord, guard: LeaseGuard = HELD) -> None:
    await helm.releases.remove_pending(helm.cluster_id, helm.contract_release, record, guard)


@case
async def a_release_that_is_not_installed_has_no_history(helm: HelmUnderTest) -> None:
    assert await statuses(helm) == []


@case
async def an_install_is_deployed_as_revision_one_with_our_labels(helm: HelmUnderTest) -> None:
    assert await upgrade(helm) == 1
    record = await latest(helm)
    assert record.status is HelmStatus.DEPLOYED
    assert record.labels.items() >= LABELS.items()


@case
async def an_upgrade_supersedes_the_revision_before(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    assert await upgrade(helm) == 2
    assert await statuses(helm) == [(1, HelmStatus.SUPERSEDED), (2, HelmStatus.DEPLOYED)]


@case
async def a_killed_install_stays_pending_with_our_labels(helm: HelmUnderTest) -> None:
    await helm.killed(lambda: upgrade(helm))
    record = await latest(helm)
    assert record.status is HelmStatus.PENDING_INSTALL
    assert record.labels.items() >= LABELS.items()


@case
async def a_killed_upgrade_stays_pending_with_our_labels(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    record = await latest(helm)
    assert record.status is HelmStatus.PENDING_UPGRADE
    assert record.labels.items() >= LABELS.items()


@quick_case
async def an_upgrade_refuses_a_pending_release_and_changes_nothing(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    before = await statuses(helm)
    with pytest.raises(HelmRefused):
        await upgrade(helm)
    assert await statuses(helm) == before


@case
async def a_removed_pending_record_lets_the_same_revision_be_made(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    await remove_pending(helm, await latest(helm))
    assert await upgrade(helm) == 2
    assert await statuses(helm) == [(1, HelmStatus.SUPERSEDED), (2, HelmStatus.DEPLOYED)]


@case
async def a_pending_record_that_has_changed_is_not_removed(helm: HelmUnderTest) -> None:
    await helm.killed(lambda: upgrade(helm))
    for change in ({"uid": "0"}, {"resource_version": "1"}):
        with pytest.raises(HelmRefused):
            await remove_pending(helm, msgspec.structs.replace(await latest(helm), **change))
    assert await statuses(helm) == [(1, HelmStatus.PENDING_INSTALL)]


@quick_case
async def a_failed_upgrade_leaves_a_failed_revision_and_the_deployed_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed) as failure:
        await upgrade(helm, broken=True)
    assert await statuses(helm) == [(1, HelmStatus.DEPLOYED), (2, HelmStatus.FAILED)]
    assert (await latest(helm)).description == str(failure.value)


@case
async def an_upgrade_follows_a_failed_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed):
        await upgrade(helm, broken=True)
    assert await upgrade(helm) == 3
    assert (await statuses(helm))[-1] == (3, HelmStatus.DEPLOYED)


@case
async def a_rollback_makes_a_new_revision_with_a_fixed_description(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await upgrade(helm)
    assert await roll_back(helm, 1) == 3
    record = await latest(helm)
    assert (record.status, record.description) == (HelmStatus.DEPLOYED, "Rollback to 1")
    assert record.labels.items() >= LABELS.items()
    assert (await statuses(helm))[1] == (2, HelmStatus.SUPERSEDED)


@quick_case
async def a_rollback_does_not_mind_a_pending_release(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    assert await roll_back(helm, 1) == 3
    assert await statuses(helm) == [
        (1, HelmStatus.SUPERSEDED),
        (2, HelmStatus.PENDING_UPGRADE),
        (3, HelmStatus.DEPLOYED),
    ]


@quick_case
async def a_failed_rollback_says_so_in_its_description_and_supersedes_the_revision_before(
    helm: HelmUnderTest,
) -> None:
    await upgrade(helm)
    await upgrade(helm)
    with pytest.raises(HelmFailed) as failure:
        await helm.rejected(lambda: roll_back(helm, 1))
    record = await latest(helm)
    assert record.description == str(failure.value)
    assert is_rollback(record, helm.contract_release, 1)
    assert await statuses(helm) == [
        (1, HelmStatus.SUPERSEDED),
        (2, HelmStatus.SUPERSEDED),
        (3, HelmStatus.FAILED),
    ]


@case
async def a_killed_rollback_stays_pending_and_can_be_made_again(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await upgrade(helm)
    await helm.killed(lambda: roll_back(helm, 1))
    record = await latest(helm)
    assert (record.revision, record.status) == (3, HelmStatus.PENDING_ROLLBACK)
    assert record.description == "Rollback to 1"
    await remove_pending(helm, record)
    assert await roll_back(helm, 1) == 3


@case
async def a_rollback_to_a_revision_that_does_not_exist_fails(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed):
        await roll_back(helm, 7)


@case
async def an_uninstall_leaves_no_history(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await uninstall(helm)
    assert await statuses(helm) == []


@case
async def a_killed_uninstall_is_finished_by_another_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: uninstall(helm))
    assert await statuses(helm) == [(1, HelmStatus.UNINSTALLING)]
    await uninstall(helm)
    assert await statuses(helm) == []


@case
async def nothing_is_written_once_the_lease_has_lapsed(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    before = await statuses(helm)
    record = await latest(helm)
    acts = [
        lambda: upgrade(helm, guard=LAPSED),
        lambda: roll_back(helm, 1, LAPSED),
        lambda: uninstall(helm, LAPSED),
        lambda: remove_pending(helm, record, LAPSED),
    ]
    for act in acts:
        with pytest.raises(LeaseLost):
            await act()
    assert await statuses(helm) == before


@quick_case
async def an_upgrade_for_which_the_api_server_is_busy_stays_pending_and_can_be_made_again(
    helm: HelmUnderTest,
) -> None:
    await upgrade(helm)
    for status in BUSY:
        with pytest.raises(ClusterUnreachable, match="the API server answered"):
            await helm.busy(status, lambda: upgrade(helm))
        record = await latest(helm)
        assert (record.revision, record.status) == (2, HelmStatus.PENDING_UPGRADE), status
        assert record.labels.items() >= LABELS.items()
        await remove_pending(helm, record)
    assert await upgrade(helm) == 2


@quick_case
async def a_rollback_for_which_the_api_server_is_busy_stays_pending_and_can_be_made_again(
    helm: HelmUnderTest,
) -> None:
    await upgrade(helm)
    await upgrade(helm)
    for status in BUSY:
        with pytest.raises(ClusterUnreachable, match="the API server answered"):
            await helm.busy(status, lambda: roll_back(helm, 1))
        record = await latest(helm)
        assert (record.revision, record.status) == (3, HelmStatus.PENDING_ROLLBACK), status
        await remove_pending(helm, record)
    assert await roll_back(helm, 1) == 3


@case
async def an_uninstall_for_which_the_api_server_is_busy_is_finished_by_another_one(
    helm: HelmUnderTest,
) -> None:
    await upgrade(helm)
    for status in BUSY:
        with pytest.raises(ClusterUnreachable, match="the API server answered"):
            await helm.busy(status, lambda: uninstall(helm))
        assert await statuses(helm) == [(1, HelmStatus.UNINSTALLING)], status
    await uninstall(helm)
    assert await statuses(helm) == []
