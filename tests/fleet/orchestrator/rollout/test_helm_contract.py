"""The double of Helm keeps the contract, and so does the real Helm behind the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.ports.helm import HelmReleases, UpgradeRequest
from tests.fleet.examples import cluster_id
from tests.fleet.helm_contract import CONTRACT, LABELS, QUICK
from tests.fleet.helm_double import FakeClusters, Interruption, too_busy
from tests.fleet.real_helm import real_helm


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
        self.contract_release = ReleaseRef("contract", "operators")

    def contract_request(self, *, broken: bool = False) -> UpgradeRequest:
        chart = "sha256:broken" if broken else "sha256:good"
        return UpgradeRequest(
            self.cluster_id, self.contract_release, chart, b"", {}, LABELS, "contract", ConflictPolicy.FAIL
        )

    async def killed(self, act: Callable[[], Awaitable[Any]]) -> None:
        undisturbed = self.clusters.interrupt

        @asynccontextmanager
        async def kill(call: str) -> Any:
            yield _Kill()

        self.clusters.interrupt = kill
        with pytest.raises(_Killed):
            await act()
        self.clusters.interrupt = undisturbed

    async def rejected(self, act: Callable[[], Awaitable[Any]]) -> None:
        self.clusters.rollback_fails = True
        await act()

    async def busy(self, status: int, act: Callable[[], Awaitable[Any]]) -> None:
        undisturbed, self.clusters.interrupt = self.clusters.interrupt, too_busy
        try:
            await act()
        finally:
            self.clusters.interrupt = undisturbed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each case with the double. With the real Helm a quick run tries the quick ones only."""
    if "real_case" in metafunc.fixturenames:
        config = metafunc.config
        whole = config.getoption("--full") or config.getoption("--engine") == "real"
        metafunc.parametrize("real_case", list(CONTRACT) if whole else QUICK)


@pytest.mark.parametrize("name", CONTRACT)
async def test_the_double_keeps_the_contract(name: str) -> None:
    await CONTRACT[name](DoubleUnderTest())


async def test_the_real_helm_keeps_the_contract(real_case: str, secure_cluster: DevCluster) -> None:
    async with real_helm(secure_cluster) as helm:
        await CONTRACT[real_case](helm)
