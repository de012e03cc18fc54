"""The operator whose replicas share the work: each check has one replica, and a replica that goes leaves its share."""

import pytest

from examples.servicecheck.servicecheck import ServiceCheck, ServiceCheckController, operator
from kapsa.runtime import Operator
from tests.examples.namespaced_harness import NamespacedHarness

NAMES = [f"check-{number}" for number in range(8)]


class FakeNetwork:
    """Services that all accept connections, or none. Records which replica has connected to which."""

    def __init__(self) -> None:
        self.down = False
        self.replicas: dict[str, set[str]] = {}

    def replica(self, name: str) -> Operator:
        """Return the operator of the example, as a replica that connects here."""

        async def connect(host: str, port: int) -> None:
            self.replicas.setdefault(host, set()).add(name)
            if self.down:
                raise ConnectionRefusedError("connection refused")

        return Operator(controllers=[ServiceCheckController(connect)], sharding=operator.sharding)


async def start(harness: NamespacedHarness, network: FakeNetwork, *names: str) -> None:
    """Start replicas, and wait until they have shared all shards."""
    replicas = [
        await harness.inner.start(network.replica(name), name=name, namespaces=[harness.namespace])
        for name in names
    ]

    async def all_are_shared() -> bool:
        held = [set(each.shards.held) for each in replicas if each.shards is not None]
        return all(held) and sum(map(len, held)) == 16

    await harness.until(all_are_shared, "each replica has its share", seconds=180)


async def ask_for(harness: NamespacedHarness, *names: str) -> None:
    for name in names:
        await harness.apply(ServiceCheck, name, service=name, port=80, intervalSeconds=5)


async def test_a_check_reports_whether_its_service_is_reachable(harness: NamespacedHarness) -> None:
    network = FakeNetwork()
    await harness.install(operator)
    await start(harness, network, "one")
    await ask_for(harness, "shop")
    await harness.condition(ServiceCheck, "shop", "Reachable", "True", "Connected")
    network.down = True
    down = await harness.condition(ServiceCheck, "shop", "Reachable", "False", "ConnectionFailed")
    assert down.status.condition("Reachable").message == "connection refused"
    assert list(network.replicas) == [f"shop.{harness.namespace}.svc"]
    surplus = harness.inner.verify_rights(operator)
    assert [each for each in surplus if "events" not in each and "leases" not in each] == []


@pytest.mark.timeout(600)
async def test_replicas_share_the_checks_and_one_takes_over_all(harness: NamespacedHarness) -> None:
    network = FakeNetwork()
    await harness.install(operator)
    await start(harness, network, "one", "two")
    await ask_for(harness, *NAMES)
    for name in NAMES:
        await harness.condition(ServiceCheck, name, "Reachable", "True")
    owners = {host: frozenset(replicas) for host, replicas in network.replicas.items()}
    assert sorted(map(len, owners.values())) == [1] * len(NAMES)
    assert set().union(*owners.values()) == {"one", "two"}
    await harness.inner.stop("one")
    network.down = True
    for name in NAMES:
        await harness.condition(ServiceCheck, name, "Reachable", "False")
    assert all("two" in replicas for replicas in network.replicas.values())
