"""The four strategies: their settings, and the stages that they make of a list of clusters.

Percentages are cumulative, rounded up, at least one cluster. Every cluster is in exactly one stage, ordered
Dev, Staging, Production and then by name, so that the same clusters always give the same stages.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Annotated

import msgspec

from kapsa.fleet.domain.durations import check_duration
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment

__all__ = [
    "BlueGreenStrategy",
    "CanaryStrategy",
    "DirectStrategy",
    "RollingStrategy",
    "RolloutStage",
    "RolloutStrategy",
    "StageTarget",
    "check_strategy",
    "cumulative_percentages",
    "stages",
]

LONGEST_SOAK = timedelta(days=14)
LONGEST_RETENTION = timedelta(days=90)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

Percentage = Annotated[int, msgspec.Meta(ge=1, le=100)]
Parallel = Annotated[int, msgspec.Meta(ge=1, le=100)]


class CanaryStrategy(
    msgspec.Struct, frozen=True, rename="camel", tag="Canary", tag_field="type", forbid_unknown_fields=True
):
    """A growing share of the clusters; each stage soaks and must be healthy before the next begins."""

    initial_percentage: Percentage = 10
    """The share of the first stage."""
    increment_percentage: Percentage = 20
    """The share that the second stage adds. The third stage has all other clusters."""
    percentages: Annotated[tuple[Percentage, ...], msgspec.Meta(max_length=100)] = ()
    """Explicit cumulative stages such as 10, 30, 100; they override the two above."""
    evaluation_period: timedelta = timedelta(minutes=5)
    success_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.95
    """The share of a cluster's health checks that must be healthy when its evaluation period ends."""
    parallel_clusters: Parallel = 5


class BlueGreenStrategy(
    msgspec.Struct, frozen=True, rename="camel", tag="BlueGreen", tag_field="type", forbid_unknown_fields=True
):
    """A second release next to the first, with one controller running at a time."""

    blue_namespace: str
    green_namespace: str
    validation_period: timedelta = timedelta(minutes=10)
    """The time that green, installed at zero replicas, must validate before the switch."""
    auto_switch: bool = True
    """False: the switch waits for a call of `switch`."""
    monitoring_period: timedelta = timedelta(minutes=5)
    """The time that green must be healthy after the switch."""
    retention: timedelta = timedelta(hours=24)
    """The time that blue is kept, at zero replicas, to switch back to."""
    parallel_clusters: Parallel = 5


class RollingStrategy(
    msgspec.Struct, frozen=True, rename="camel", tag="Rolling", tag_field="type", forbid_unknown_fields=True
):
    """One cluster after another."""

    cluster_order: tuple[str, ...] = ()
    """Names in the order wanted by the requester; clusters not named follow, in the usual order."""
    validation_period: timedelta = timedelta(minutes=5)
    pause_between_clusters: timedelta = timedelta(minutes=2)


class DirectStrategy(
    msgspec.Struct, frozen=True, rename="camel", tag="Direct", tag_field="type", forbid_unknown_fields=True
):
    """All clusters at once."""

    parallel_clusters: Parallel = 10
    skip_health_checks: bool = False


RolloutStrategy = CanaryStrategy | BlueGreenStrategy | RollingStrategy | DirectStrategy


class StageTarget(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster that a deployment is to reach."""

    name: str
    environment: ClusterEnvironment


class RolloutStage(msgspec.Struct, frozen=True, rename="camel"):
    """Clusters that are changed together, and what must pass before the next stage begins."""

    number: int
    """Counted from 1."""
    clusters: tuple[str, ...]
    parallel: int
    soak: timedelta
    """The time for which every cluster of the stage must be healthy."""
    pause_before: timedelta = timedelta()
    success_threshold: float = 0.0
    """The share of healthy checks that the gate asks for. 0: the soak begins again if too many fail."""
    check_health: bool = True


def stages(strategy: RolloutStrategy, targets: Iterable[StageTarget]) -> tuple[RolloutStage, ...]:
    """Return the stages of a rollout over these clusters.

    Raises `InvalidInput` if a cluster is named twice or the strategy cannot be used for them.
    """
    check_strategy(strategy)
    ordered = sorted(targets, key=lambda target: (target.environment.rank, target.name))
    names = [target.name for target in ordered]
    if len(set(names)) != len(names):
        raise InvalidInput(
            "a cluster is listed twice", InvalidField("/clusters", "each cluster may be listed once")
        )
    match strategy:
        case CanaryStrategy():
            return _canary(strategy, names)
        case RollingStrategy():
            return _rolling(strategy, names)
        case BlueGreenStrategy():
            return _at_once(names, strategy.parallel_clusters, strategy.monitoring_period)
        case DirectStrategy():
            return _at_once(
                names, strategy.parallel_clusters, timedelta(), check=not strategy.skip_health_checks
            )


def check_strategy(strategy: RolloutStrategy) -> None:
    """Raise `InvalidInput` that names the first setting that has no meaning."""
    match strategy:
        case CanaryStrategy():
            cumulative_percentages(strategy)
            check_duration(strategy.evaluation_period, "/canaryConfig/evaluationPeriod", LONGEST_SOAK)
        case BlueGreenStrategy():
            _check_blue_green(strategy)
        case RollingStrategy():
            check_duration(strategy.validation_period, "/rollingConfig/validationPeriod", LONGEST_SOAK)
            check_duration(
                strategy.pause_between_clusters, "/rollingConfig/pauseBetweenClusters", LONGEST_SOAK
            )
        case DirectStrategy():
            pass  # its settings are bounded by their types


def _check_blue_green(strategy: BlueGreenStrategy) -> None:
    check_duration(strategy.validation_period, "/blueGreenConfig/validationPeriod", LONGEST_SOAK)
    check_duration(strategy.monitoring_period, "/blueGreenConfig/monitoringPeriod", LONGEST_SOAK)
    check_duration(strategy.retention, "/blueGreenConfig/retention", LONGEST_RETENTION)
    for name, path in (
        (strategy.blue_namespace, "blueNamespace"),
        (strategy.green_namespace, "greenNamespace"),
    ):
        if not _NAMESPACE.fullmatch(name):
            message = f"must be the name of a namespace (a DNS label), got {name[:70]!r}"
            raise InvalidInput(message, InvalidField(f"/blueGreenConfig/{path}", message))
    if strategy.blue_namespace == strategy.green_namespace:
        message = "must differ from blueNamespace"
        raise InvalidInput(message, InvalidField("/blueGreenConfig/greenNamespace", message))


def cumulative_percentages(strategy: CanaryStrategy) -> tuple[int, ...]:
    """Return the share of clusters that is reached with each stage; the last is always 100."""
    if not strategy.percentages:
        second = strategy.initial_percentage + strategy.increment_percentage
        return tuple(sorted({min(step, 100) for step in (strategy.initial_percentage, second, 100)}))
    steps = strategy.percentages
    if any(later <= earlier for earlier, later in pairwise(steps)):
        message = f"must increase from stage to stage, got {list(steps)}"
        raise InvalidInput(message, InvalidField("/canaryConfig/percentages", message))
    return steps if steps[-1] == 100 else (*steps, 100)


def _canary(strategy: CanaryStrategy, names: Sequence[str]) -> tuple[RolloutStage, ...]:
    result: list[RolloutStage] = []
    done = 0
    for percentage in cumulative_percentages(strategy):
        upto = max(1, ceil(Fraction(percentage, 100) * len(names))) if names else 0
        if upto > done:
            result.append(
                RolloutStage(
                    number=len(result) + 1,
                    clusters=tuple(names[done:upto]),
                    parallel=strategy.parallel_clusters,
                    soak=strategy.evaluation_period,
                    success_threshold=strategy.success_threshold,
                )
            )
            done = upto
    return tuple(result)


def _rolling(strategy: RollingStrategy, names: Sequence[str]) -> tuple[RolloutStage, ...]:
    targets = set(names)
    unknown = [name for name in strategy.cluster_order if name not in targets]
    if unknown:
        message = f"{unknown[0]!r} is not one of the target clusters"
        raise InvalidInput(message, InvalidField("/rollingConfig/clusterOrder", message))
    if len(set(strategy.cluster_order)) != len(strategy.cluster_order):
        message = "each cluster may be listed once"
        raise InvalidInput(message, InvalidField("/rollingConfig/clusterOrder", message))
    named = set(strategy.cluster_order)
    order = [*strategy.cluster_order, *(name for name in names if name not in named)]
    return tuple(
        RolloutStage(
            number=number,
            clusters=(name,),
            parallel=1,
            soak=strategy.validation_period,
            pause_before=strategy.pause_between_clusters if number > 1 else timedelta(),
        )
        for number, name in enumerate(order, 1)
    )


def _at_once(
    names: Sequence[str], parallel: int, soak: timedelta, *, check: bool = True
) -> tuple[RolloutStage, ...]:
    if not names:
        return ()
    return (RolloutStage(number=1, clusters=tuple(names), parallel=parallel, soak=soak, check_health=check),)
