"""A plan as text: stages, and for each cluster what would change and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from kapsa.cli.tables import format_duration, print_fields, print_table, printable
from kapsa.fleet.domain.rollout.plans import ClusterPlan, LiveVerdict, RolloutPlan
from kapsa.fleet.orchestrator.deployment_requests import PlanDetails

__all__ = ["describe_plan"]


def describe_plan(details: PlanDetails, *, diff: bool) -> None:
    """Print a plan, with the diffs of the manifests if asked."""
    plan = details.plan
    needed = ", ".join(f"{each.kind} in {each.environment}" for each in details.required_approvals)
    print_fields(
        [
            ("plan", details.digest),
            ("operator", f"{plan.operator_name} {plan.version}"),
            ("strategy", type(plan.strategy).__name__.removesuffix("Strategy")),
            ("on conflict", plan.on_conflict),
            ("on offline", plan.on_offline),
            ("approvals", needed or "none needed"),
            ("skipped", ", ".join(plan.skipped)),
            ("forced", plan.force_reason),
            ("windows set aside", plan.window_override_reason),
        ]
    )
    typer.echo()
    _print_stages(plan)
    for line in _remarks(plan):
        typer.echo(printable(line))
    if diff:
        for cluster in plan.clusters:
            typer.echo(f"\n# {printable(cluster.cluster_name)}")
            typer.echo(printable(cluster.diff or "no difference", keep="\n\t"))


def _print_stages(plan: RolloutPlan) -> None:
    soaks = {stage.number: format_duration(stage.soak.total_seconds()) for stage in plan.stages}
    rows = [
        (
            each.stage,
            each.cluster_name,
            each.environment,
            f"{each.present_version or '-'} → {plan.version}",
            soaks.get(each.stage, ""),
            _crds(each),
            _changes(each),
            len(each.problems) or "-",
        )
        for each in sorted(plan.clusters, key=lambda each: (each.stage, each.cluster_name))
    ]
    headers = ("STAGE", "CLUSTER", "ENVIRONMENT", "VERSION", "SOAK", "CRDS", "CHANGES", "PROBLEMS")
    print_table(headers, rows, empty="the plan changes no cluster")


def _crds(cluster: ClusterPlan) -> str:
    if not cluster.crds:
        return "-"
    worst = "breaking" if cluster.breaking else "warning" if _warns(cluster) else "safe"
    return f"{len(cluster.crds)} {worst}{', one-way' if cluster.one_way else ''}"


def _warns(cluster: ClusterPlan) -> bool:
    return any(change.severity == "warning" for change in cluster.crds)


def _changes(cluster: ClusterPlan) -> str:
    lines = [line for line in cluster.diff.splitlines() if not line.startswith(("+++", "---"))]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} -{removed}" if added or removed else "none"


def _remarks(plan: RolloutPlan) -> Iterator[str]:
    """Yield what a person must read, cluster by cluster."""
    for each in plan.clusters:
        name = each.cluster_name
        for problem in each.problems:
            yield f"problem: {name}: {problem.check}: {problem.message}"
        for conflict in each.conflicts:
            yield f"conflict: {name}: {conflict.object} {conflict.field} belongs to {conflict.manager}"
        for change in each.crds:
            for finding in change.findings if change.severity != "safe" else ():
                yield f"crd: {name}: {change.name}: {finding}"
        for verdict in each.verdicts:
            if verdict.rejected or verdict.partial_reason or verdict.pruned:
                yield f"live: {name}: {_verdict(verdict)}"
        for notice in each.notices:
            yield f"notice: {name}: {notice}"


def _verdict(verdict: LiveVerdict) -> str:
    parts = [f"{verdict.rejected} of {verdict.checked} {verdict.crd} would be rejected"]
    if verdict.pruned:
        parts.append(f"{verdict.pruned} would lose fields")
    if verdict.partial_reason:
        parts.append(f"not all were read: {verdict.partial_reason}")
    return "; ".join([*parts, *verdict.examples])
