"""The targets of the design, compared with the medians of a run."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bench.fleet.limits import (
    CLUSTER_CONNECTIONS,
    DATABASE_CONNECTIONS,
    FAILED_DEPLOYMENTS,
    FAILED_REQUESTS,
    MEMORY,
    ONE,
    THREE,
    fleet_limits,
)
from bench.results import Spread, Table, shown


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A bound for a quantity of one peer, or for its ratio to that of another peer."""

    text: str
    scenario: str
    n: int
    quantity: str
    peer: str = "kapsa"
    over: str = ""
    """The peer of the denominator."""
    at_least: float | None = None
    at_most: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """A target with its measured value."""

    target: Target
    measured: float | None
    """The measured value; None if the run did not measure it."""

    @property
    def holds(self) -> bool:
        measured, target = self.measured, self.target
        if measured is None:
            return False
        if target.at_least is not None and measured < target.at_least:
            return False
        return target.at_most is None or measured <= target.at_most

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        return "holds" if self.holds else "**MISSED**"

    @property
    def bound(self) -> str:
        target = self.target
        if target.at_least is not None:
            return f"≥ {shown(target.at_least)}"
        return f"≤ {shown(target.at_most or 0.0)}"


def judge(tables: Mapping[tuple[str, int], Table]) -> list[Verdict]:
    return [
        Verdict(target, measured(target, tables.get((target.scenario, target.n), {}))) for target in TARGETS
    ]


def measured(target: Target, table: Table) -> float | None:
    ours: Spread | None = table.get(target.peer, {}).get(target.quantity)
    if ours is None:
        return None
    if not target.over:
        return ours.median
    other = table.get(target.over, {}).get(target.quantity)
    return None if other is None or not other.median else ours.median / other.median


def _operators(scenario: str, n: int) -> list[Target]:
    return [
        Target(
            text="CPU of kopf over Kapsa's",
            scenario=scenario,
            n=n,
            quantity="CPU s",
            peer="kopf",
            over="kapsa",
            at_least=5,
        ),
        Target(
            text="wall time of kopf over Kapsa's",
            scenario=scenario,
            n=n,
            quantity="wall s",
            peer="kopf",
            over="kapsa",
            at_least=2,
        ),
        Target(
            text="wall time over controller-runtime's",
            scenario=scenario,
            n=n,
            quantity="wall s",
            over="controller-runtime",
            at_most=1.15,
        ),
        Target(
            text="write rate over the bare load generator's",
            scenario=scenario,
            n=n,
            quantity="writes per s",
            over="bare load generator",
            at_least=0.85,
        ),
    ]


def _kube_rs(scenario: str, cpu: float) -> list[Target]:
    """Return the bounds against kube-rs, the fastest peer, at the size of the other targets."""
    compared = (("CPU µs a resource after that", "CPU by resource", cpu), ("wall s", "wall time", 1.05))
    return [
        Target(
            text=f"{text} over kube-rs's",
            scenario=scenario,
            n=2000,
            quantity=quantity,
            over="kube-rs",
            at_most=bound,
        )
        for quantity, text, bound in compared
    ]


def _servers() -> list[Target]:
    quantities = (
        "create per CPU s",
        "get per CPU s",
        "status per CPU s",
        "lists of 5,000 per CPU s",
        "watch deliveries per CPU s",
    )
    return [
        Target(
            text=f"{quantity}, {peer} over real",
            scenario="servers",
            n=3000,
            quantity=quantity,
            peer=peer,
            over="real",
            at_least=1,
        )
        for peer in ("embedded", "embedded, by token")
        for quantity in quantities
    ]


def _noop(peer: str) -> list[Target]:
    return [
        Target(
            text=f"reconciles without a change, {peer}, per CPU second",
            scenario="noop",
            n=2000,
            quantity="reconciles per CPU s",
            peer=peer,
            at_least=5000,
        ),
        Target(
            text=f"requests they make, {peer}",
            scenario="noop",
            n=2000,
            quantity="API requests",
            peer=peer,
            at_most=0,
        ),
    ]


def _fleet() -> list[Target]:
    """Return our limits for the fleet manager, at its largest size: those of p99, and of what it uses."""
    used = (MEMORY, CLUSTER_CONNECTIONS, DATABASE_CONNECTIONS, FAILED_REQUESTS, FAILED_DEPLOYMENTS)
    bounds = [
        Target(
            text=f"{quantity}, {peer}",
            scenario="fleet",
            n=100,
            quantity=quantity,
            peer=peer,
            at_most=limit.ours,
        )
        for peer in (ONE, THREE)
        for quantity, limit in fleet_limits().items()
        if quantity in used or quantity.endswith("p99")
    ]
    shared = [
        Target(
            text=f"{work} of the least busy of three replicas, %",
            scenario="fleet",
            n=100,
            quantity=f"{work} of the least busy replica %",
            peer=THREE,
            at_least=20,
        )
        for work in ("health checks", "Helm runs")
    ]
    return [*bounds, *shared]


TARGETS: tuple[Target, ...] = (
    *_operators("status-writes", 2000),
    *_operators("owned-children", 2000),
    *_kube_rs("status-writes", 1.1),
    *_kube_rs("owned-children", 1.0),
    Target(
        text="seconds from start to first write",
        scenario="status-writes",
        n=2000,
        quantity="start to first write s",
        at_most=0.25,
    ),
    *_noop("no children"),
    *_noop("two children"),
    Target(text="the myapp operator at rest, MB", scenario="at-rest", n=1, quantity="RSS MB", at_most=30),
    Target(
        text="10,000 resources over the base process, MB",
        scenario="cache",
        n=10000,
        quantity="RSS over base MB",
        at_most=25,
    ),
    Target(
        text="the embedded engine in-process, ms to ready",
        scenario="server-start",
        n=5,
        quantity="ms to ready",
        peer="embedded, in-process",
        at_most=20,
    ),
    Target(
        text="the embedded engine as a process, ms to ready",
        scenario="server-start",
        n=5,
        quantity="ms to ready",
        peer="embedded, as a process",
        at_most=500,
    ),
    *_servers(),
    Target(
        text="ten embedded clusters with TLS in one process, CPU s",
        scenario="server-crowd",
        n=10,
        quantity="CPU s",
        peer="embedded",
        at_most=2,
    ),
    Target(
        text="ten embedded clusters with TLS in one process, MB",
        scenario="server-crowd",
        n=10,
        quantity="peak RSS MB",
        peer="embedded",
        at_most=100,
    ),
    Target(
        text="10,000 objects in the embedded engine, MB",
        scenario="server-memory",
        n=10000,
        quantity="RSS MB",
        peer="embedded",
        at_most=150,
    ),
    Target(
        text="writes in half a minute of 500 environments at rest",
        scenario="environments",
        n=500,
        quantity="steady: API writes",
        at_most=0,
    ),
    Target(
        text="500 environments at rest, % of a core",
        scenario="environments",
        n=500,
        quantity="steady: % of a core",
        at_most=2,
    ),
    *_fleet(),
)
