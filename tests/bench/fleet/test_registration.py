"""The preparation of a manager: nobody exceeds a rate limit, and the first failure ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from bench.fleet.cluster_process import ServedCluster
from bench.fleet.registration import (
    Call,
    adoption_requests,
    cluster_requests,
    in_parallel,
    operator_requests,
    version_requests,
)
from bench.fleet.size import FleetSize, cluster_name

SIZE = FleetSize.of(100)
CLUSTERS = [ServedCluster(cluster_name(number), "{}", 1) for number in range(SIZE.clusters)]


def most_of_one_person(requests: Sequence[Call]) -> int:
    return max(Counter(person for person, _, _ in requests).values())


def test_nobody_registers_more_clusters_than_a_person_may_in_a_minute() -> None:
    requests = cluster_requests(CLUSTERS)
    assert len(requests) == 100
    assert most_of_one_person(requests) == 5


def test_nobody_writes_more_often_than_a_person_may_in_a_minute() -> None:
    operators, versions = operator_requests(SIZE, "http://charts"), version_requests(SIZE)
    adoptions = adoption_requests(SIZE, CLUSTERS)
    assert (len(operators), len(versions), len(adoptions)) == (500, 40, 2000)
    assert most_of_one_person([*operators, *versions, *adoptions]) == 60


async def test_all_requests_are_sent_once() -> None:
    sent: list[Call] = []

    async def send(call: Call) -> None:
        sent.append(call)

    requests = cluster_requests(CLUSTERS)
    await in_parallel(requests, send, lambda done: None)
    assert sorted(map(str, sent)) == sorted(map(str, requests))


async def test_the_first_failure_ends_the_preparation() -> None:
    sent: list[Call] = []

    async def send(call: Call) -> None:
        sent.append(call)
        raise RuntimeError("the manager refuses")

    with pytest.raises(RuntimeError, match="the manager refuses"):
        await in_parallel(cluster_requests(CLUSTERS), send, lambda done: None)
    assert len(sent) <= 4
