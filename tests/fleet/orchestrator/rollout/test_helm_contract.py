"""The contract of Helm's states, which the double and the real Helm both keep.

A `HelmUnderTest` brings an implementation of the port with an empty cluster, and ways to kill Helm half-way and to
have a chart that it cannot apply. The real Helm joins by one more entry in `IMPLEMENTATIONS`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
import pytest

from kapsa.fleet.domain.deployments import ConflictPolicy
from kapsa.fleet.domain.releases import HelmStatus, ReleaseIntent, ReleaseRecord, ReleaseRef, latest_record
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmRefused, HelmReleases, UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost
from tests.fleet.examples import cluster_id
from tests.fleet.helm_double import FakeClusters, Interruption

RELEASE = ReleaseRef("contract", "operators")
INTENT = ReleaseIntent(RELEASE, 1, "deployment-1", 1, "sha256:" + "a" * 64)
HELD = LeaseGuard(1.0, lambda: 0.0)
LAPSED = LeaseGuard(0.0, lambda: 0.0)


class HelmUnderTest(Protocol):
    """An implementation of the port, and a cluster of its own."""

    releases: HelmReleases
    cluster_id: uuid.UUID
    good_chart: str
    broken_chart: str
    """The digest of a chart that the cluster does not accept."""

    async def killed(self, act: Callable[[], Any]) -> None:
        """Run an act, and kill Helm after its first write."""
        ...


class _Killed(BaseException):
    pass


class _Kill(Interruption):
    async def cut_off(self) -> None:
        raise _Killed


class DoubleUnderTest:
    """The double of Helm."""

    def __init__(self) -> None:
        clusters = FakeClusters("dev-1", identify=cluster_id)
        clusters.helm_fails = {("dev-1", "sha256:broken")}
        self.clusters = clusters
        self.releases: HelmReleases = clusters
        self.cluster_id = cluster_id("dev-1")
        self.good_chart, self.broken_chart = "sha256:good", "sha256:broken"

    async def killed(self, act: Callable[[], Any]) -> None:
        undisturbed = self.clusters.interrupt

        @asynccontextmanager
        async def kill(call: str) -> Any:
            yield _Kill()

        self.clusters.interrupt = kill
        with pytest.raises(_Killed):
            await act()
        self.clusters.interrupt = undisturbed


IMPLEMENTATIONS = {"double": DoubleUnderTest}


@pytest.fixture(params=IMPLEMENTATIONS)
def helm(request: pytest.FixtureRequest) -> HelmUnderTest:
    """Each implementation, with nothing installed."""
    return IMPLEMENTATIONS[request.param]()


def request(helm: HelmUnderTest, chart: str = "") -> UpgradeRequest:
    return UpgradeRequest(
        helm.cluster_id,
        RELEASE,
        chart or helm.good_chart,
        b"",
        {},
        INTENT.labels,
        "contract",
        ConflictPolicy.FAIL,
    )


async def upgrade(helm: HelmUnderTest, chart: str = "", guard: LeaseGuard = HELD) -> int:
    return await helm.releases.upgrade(request(helm, chart), guard)


async def statuses(helm: HelmUnderTest) -> list[tuple[int, HelmStatus]]:
    history = await helm.releases.history(helm.cluster_id, RELEASE)
    return [(record.revision, record.status) for record in sorted(history, key=lambda each: each.revision)]


async def latest(helm: HelmUnderTest) -> ReleaseRecord:
    record = latest_record(await helm.releases.history(helm.cluster_id, RELEASE))
    assert record is not None
    return record


async def roll_back(helm: HelmUnderTest, revision: int) -> int:
    return await helm.releases.rollback(helm.cluster_id, RELEASE, revision, HELD)


async def test_a_release_that_is_not_installed_has_no_history(helm: HelmUnderTest) -> None:
    assert await statuses(helm) == []


async def test_an_install_is_deployed_as_revision_one_with_our_labels(helm: HelmUnderTest) -> None:
    assert await upgrade(helm) == 1
    record = await latest(helm)
    assert record.status is HelmStatus.DEPLOYED
    assert record.labels.items() >= INTENT.labels.items()


async def test_an_upgrade_supersedes_the_revision_before(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    assert await upgrade(helm) == 2
    assert await statuses(helm) == [(1, HelmStatus.SUPERSEDED), (2, HelmStatus.DEPLOYED)]


@pytest.mark.parametrize(
    ("installed", "pending"),
    [(False, HelmStatus.PENDING_INSTALL), (True, HelmStatus.PENDING_UPGRADE)],
)
async def test_a_killed_upgrade_stays_pending_with_our_labels(
    helm: HelmUnderTest, installed: bool, pending: HelmStatus
) -> None:
    if installed:
        await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    record = await latest(helm)
    assert record.status is pending
    assert record.labels.items() >= INTENT.labels.items()


async def test_an_upgrade_refuses_a_pending_release_and_changes_nothing(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    before = await statuses(helm)
    with pytest.raises(HelmRefused):
        await upgrade(helm)
    assert await statuses(helm) == before


async def test_a_removed_pending_record_lets_the_same_revision_be_made(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    await helm.releases.remove_pending(helm.cluster_id, RELEASE, await latest(helm), HELD)
    assert await upgrade(helm) == 2
    assert await statuses(helm) == [(1, HelmStatus.SUPERSEDED), (2, HelmStatus.DEPLOYED)]


@pytest.mark.parametrize("field", ["uid", "resource_version"])
async def test_a_pending_record_that_has_changed_is_not_removed(helm: HelmUnderTest, field: str) -> None:
    await helm.killed(lambda: upgrade(helm))
    other = msgspec.structs.replace(await latest(helm), **{field: "0"})
    with pytest.raises(HelmRefused):
        await helm.releases.remove_pending(helm.cluster_id, RELEASE, other, HELD)
    assert await statuses(helm) == [(1, HelmStatus.PENDING_INSTALL)]


async def test_a_failed_upgrade_leaves_a_failed_revision_and_the_deployed_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed) as failure:
        await upgrade(helm, helm.broken_chart)
    assert await statuses(helm) == [(1, HelmStatus.DEPLOYED), (2, HelmStatus.FAILED)]
    assert (await latest(helm)).description == str(failure.value)


async def test_an_upgrade_follows_a_failed_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed):
        await upgrade(helm, helm.broken_chart)
    assert await upgrade(helm) == 3
    assert (await statuses(helm))[-1] == (3, HelmStatus.DEPLOYED)


async def test_a_rollback_makes_a_new_revision_with_a_fixed_description(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await upgrade(helm)
    assert await roll_back(helm, 1) == 3
    record = await latest(helm)
    assert (record.status, record.description) == (HelmStatus.DEPLOYED, "Rollback to 1")
    assert (await statuses(helm))[1] == (2, HelmStatus.SUPERSEDED)


async def test_a_rollback_does_not_mind_a_pending_release(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: upgrade(helm))
    assert await roll_back(helm, 1) == 3
    assert (await latest(helm)).status is HelmStatus.DEPLOYED


async def test_a_killed_rollback_stays_pending_and_can_be_made_again(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await upgrade(helm)
    await helm.killed(lambda: roll_back(helm, 1))
    record = await latest(helm)
    assert (record.revision, record.status) == (3, HelmStatus.PENDING_ROLLBACK)
    assert record.description == "Rollback to 1"
    await helm.releases.remove_pending(helm.cluster_id, RELEASE, record, HELD)
    assert await roll_back(helm, 1) == 3


async def test_a_rollback_to_a_revision_that_does_not_exist_fails(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    with pytest.raises(HelmFailed):
        await roll_back(helm, 7)


async def test_an_uninstall_leaves_no_history(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.releases.uninstall(helm.cluster_id, RELEASE, HELD)
    assert await statuses(helm) == []


async def test_a_killed_uninstall_is_finished_by_another_one(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    await helm.killed(lambda: helm.releases.uninstall(helm.cluster_id, RELEASE, HELD))
    assert await statuses(helm) == [(1, HelmStatus.UNINSTALLING)]
    await helm.releases.uninstall(helm.cluster_id, RELEASE, HELD)
    assert await statuses(helm) == []


async def test_nothing_is_written_once_the_lease_has_lapsed(helm: HelmUnderTest) -> None:
    await upgrade(helm)
    before = await statuses(helm)
    record = await latest(helm)
    acts = [
        lambda: upgrade(helm, guard=LAPSED),
        lambda: helm.releases.rollback(helm.cluster_id, RELEASE, 1, LAPSED),
        lambda: helm.releases.uninstall(helm.cluster_id, RELEASE, LAPSED),
        lambda: helm.releases.remove_pending(helm.cluster_id, RELEASE, record, LAPSED),
    ]
    for act in acts:
        with pytest.raises(LeaseLost):
            await act()
    assert await statuses(helm) == before
