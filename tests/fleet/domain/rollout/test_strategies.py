"""Stages: every cluster exactly once, cumulative shares, the same for the same clusters."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
    RolloutStrategy,
    StageTarget,
    cumulative_percentages,
    stages,
)

PERCENT = st.integers(1, 100)
INCREASING = st.sets(PERCENT, min_size=1, max_size=8).map(lambda chosen: tuple(sorted(chosen)))
STRATEGIES = st.one_of(
    st.builds(CanaryStrategy, initial_percentage=PERCENT, increment_percentage=PERCENT),
    st.builds(CanaryStrategy, percentages=INCREASING),
    st.just(RollingStrategy()),
    st.just(DirectStrategy()),
    st.just(BlueGreenStrategy("blue", "green")),
)
TARGETS = st.lists(
    st.builds(StageTarget, st.text("abcdef-", min_size=1, max_size=8), st.sampled_from(ClusterEnvironment)),
    unique_by=lambda target: target.name,
    max_size=60,
)


def targets(count: int) -> list[StageTarget]:
    """Return clusters of which the first tenth is Dev, the next fifth Staging, the rest Production."""
    environments = [ClusterEnvironment.DEV] * (count // 10) + [ClusterEnvironment.STAGING] * (count // 5)
    environments += [ClusterEnvironment.PRODUCTION] * (count - len(environments))
    return [StageTarget(f"c{number:03}", each) for number, each in enumerate(environments)]


@given(STRATEGIES, TARGETS)
def test_every_cluster_is_in_exactly_one_stage(
    strategy: RolloutStrategy, clusters: list[StageTarget]
) -> None:
    planned = [name for stage in stages(strategy, clusters) for name in stage.clusters]
    assert sorted(planned) == sorted(target.name for target in clusters)


@given(STRATEGIES, TARGETS, st.randoms())
def test_the_order_of_the_request_changes_nothing(strategy, clusters, random) -> None:
    shuffled = list(clusters)
    random.shuffle(shuffled)
    assert stages(strategy, shuffled) == stages(strategy, clusters)


@given(STRATEGIES, TARGETS)
def test_stages_are_numbered_from_one_and_none_is_empty(strategy, clusters) -> None:
    planned = stages(strategy, clusters)
    assert [stage.number for stage in planned] == list(range(1, len(planned) + 1))
    assert all(stage.clusters for stage in planned)


@given(STRATEGIES, TARGETS)
def test_environments_never_go_back_in_a_rollout(strategy, clusters) -> None:
    rank = {target.name: target.environment.rank for target in clusters}
    planned = [rank[name] for stage in stages(strategy, clusters) for name in stage.clusters]
    assert planned == sorted(planned)


@given(INCREASING, TARGETS.filter(bool))
def test_a_canary_reaches_its_cumulative_share_rounded_up(percentages, clusters) -> None:
    strategy = CanaryStrategy(percentages=percentages)
    reached, allowed = 0, {max(1, ceil(Fraction(p, 100) * len(clusters))) for p in (*percentages, 100)}
    for stage in stages(strategy, clusters):
        reached += len(stage.clusters)
        assert reached in allowed
    assert reached == len(clusters)


def test_10_30_100_of_ten_clusters_is_one_two_and_seven() -> None:
    planned = stages(CanaryStrategy(percentages=(10, 30, 100)), targets(10))
    assert [len(stage.clusters) for stage in planned] == [1, 2, 7]


def test_the_example_of_the_specification_has_three_stages_by_environment() -> None:
    strategy = CanaryStrategy(initial_percentage=10, increment_percentage=20)
    clusters = targets(10)
    environment = {target.name: target.environment for target in clusters}
    reached = [{environment[name] for name in stage.clusters} for stage in stages(strategy, clusters)]
    assert cumulative_percentages(strategy) == (10, 30, 100)
    assert reached == [
        {ClusterEnvironment.DEV},
        {ClusterEnvironment.STAGING},
        {ClusterEnvironment.PRODUCTION},
    ]


@pytest.mark.parametrize(
    ("initial", "increment", "expected"),
    [
        (10, 20, (10, 30, 100)),
        (50, 50, (50, 100)),
        (100, 20, (100,)),
        (60, 90, (60, 100)),
        (1, 1, (1, 2, 100)),
    ],
)
def test_initial_and_increment_give_cumulative_shares(initial, increment, expected) -> None:
    assert cumulative_percentages(CanaryStrategy(initial, increment)) == expected


def test_one_cluster_is_one_stage_whatever_the_shares() -> None:
    assert len(stages(CanaryStrategy(percentages=(1, 2, 50, 100)), targets(1))) == 1


def test_a_last_share_below_100_is_followed_by_the_rest() -> None:
    assert cumulative_percentages(CanaryStrategy(percentages=(5, 25))) == (5, 25, 100)


def test_rolling_takes_one_cluster_at_a_time_in_the_named_order_and_pauses_between() -> None:
    clusters = [StageTarget(name, ClusterEnvironment.DEV) for name in ("a", "b", "c")]
    planned = stages(RollingStrategy(cluster_order=("c", "a")), clusters)
    assert [stage.clusters for stage in planned] == [("c",), ("a",), ("b",)]
    assert [stage.pause_before for stage in planned] == [timedelta(), *[timedelta(minutes=2)] * 2]


def test_direct_is_one_stage_without_a_soak_and_can_skip_health_checks() -> None:
    (stage,) = stages(DirectStrategy(parallel_clusters=3, skip_health_checks=True), targets(10))
    assert (stage.parallel, stage.soak, stage.check_health) == (3, timedelta(), False)


def test_no_clusters_give_no_stages() -> None:
    assert stages(DirectStrategy(), []) == ()
    assert stages(CanaryStrategy(), []) == ()


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        (CanaryStrategy(percentages=(30, 30)), "/canaryConfig/percentages"),
        (CanaryStrategy(percentages=(30, 10)), "/canaryConfig/percentages"),
        (CanaryStrategy(evaluation_period=timedelta(seconds=-1)), "/canaryConfig/evaluationPeriod"),
        (CanaryStrategy(evaluation_period=timedelta(days=15)), "/canaryConfig/evaluationPeriod"),
        (RollingStrategy(cluster_order=("nowhere",)), "/rollingConfig/clusterOrder"),
        (RollingStrategy(cluster_order=("c000", "c000")), "/rollingConfig/clusterOrder"),
        (RollingStrategy(pause_between_clusters=timedelta(days=-1)), "/rollingConfig/pauseBetweenClusters"),
        (BlueGreenStrategy("same", "same"), "/blueGreenConfig/greenNamespace"),
        (BlueGreenStrategy("../etc", "green"), "/blueGreenConfig/blueNamespace"),
        (BlueGreenStrategy("blue", "green\n"), "/blueGreenConfig/greenNamespace"),
        (BlueGreenStrategy("blue", "green", retention=timedelta(days=91)), "/blueGreenConfig/retention"),
    ],
)
def test_a_setting_without_meaning_is_refused_by_its_path(strategy: RolloutStrategy, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        stages(strategy, targets(3))
    assert [field.path for field in refused.value.fields] == [path]


def test_a_cluster_listed_twice_is_refused() -> None:
    with pytest.raises(InvalidInput):
        stages(DirectStrategy(), [*targets(2), *targets(1)])


@pytest.mark.parametrize(
    "document", ['{"type":"Canary","initialPercentage":0}', '{"type":"Direct","parallelClusters":101}']
)
def test_a_number_out_of_range_is_refused_when_it_is_read(document: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(document, type=CanaryStrategy | DirectStrategy)
