"""CRDs and their changes as text."""

from __future__ import annotations

import typer

from kapsa.cli.tables import print_fields, print_table, printable
from kapsa.fleet.domain.crds import ChangeSeverity, CrdFinding
from kapsa.fleet.orchestrator.crds.requests import CrdDetail, CrdValidation

__all__ = ["describe_crd", "describe_validation"]

_MOST = 50
"""Findings that are shown; `-o json` has all."""


def describe_crd(crd: CrdDetail) -> None:
    """Print a CRD with its revisions, its approvals, and the clusters that have it."""
    print_table(
        ("OPERATOR", "VERSION", "LOCATION", "DIGEST", "CREATED"),
        [
            (
                each.operator,
                each.version,
                each.location,
                each.digest[:19],
                f"{each.created_at:%Y-%m-%d %H:%M}",
            )
            for each in crd.revisions
        ],
        empty="no version has this CRD",
    )
    typer.echo()
    print_table(
        ("CLUSTER", "ENVIRONMENT", "KUBERNETES", "SERVED", "STORED", "MANAGED BY"),
        [
            (
                each.cluster,
                each.environment,
                each.kubernetes_version,
                ",".join(each.served_versions),
                ",".join(each.stored_versions),
                each.managed_by,
            )
            for each in crd.clusters
        ],
        empty="no cluster has this CRD",
    )
    for approval in crd.approvals:
        typer.echo(
            f"approved: {printable(approval.version)} by {printable(approval.approved_by)}, "
            f"{approval.approved_at:%Y-%m-%d %H:%M} UTC: {printable(approval.comment)}"
        )


def describe_validation(validation: CrdValidation) -> None:
    """Print the findings, the worst first, and the verdict on each cluster."""
    print_fields(
        [
            ("crd", validation.name),
            ("change", f"{validation.from_version or 'new'} → {validation.version}"),
            ("severity", validation.severity),
            ("one-way", "; ".join(validation.one_way_reasons)),
            ("digest", validation.digest),
            ("approved by", validation.approval.approved_by if validation.approval else ""),
        ]
    )
    order = [ChangeSeverity.BREAKING, ChangeSeverity.WARNING, ChangeSeverity.SAFE]
    findings = sorted(validation.findings, key=lambda each: order.index(each.severity))
    typer.echo()
    print_table(
        ("SEVERITY", "RULE", "PATH", "REASON"),
        [_row(each) for each in findings[:_MOST]],
        empty="nothing differs",
    )
    if len(findings) > _MOST:
        typer.echo(f"{len(findings) - _MOST} more findings: use -o json", err=True)
    for remedy in dict.fromkeys(each.remedy for each in findings[:_MOST] if each.remedy):
        typer.echo(f"remedy: {printable(remedy)}")
    for cluster in validation.clusters:
        typer.echo(printable(f"{cluster.cluster} ({cluster.environment}): {cluster.line}"))


def _row(finding: CrdFinding) -> tuple[object, ...]:
    path = f"{finding.version}: {finding.path}" if finding.version else finding.path
    return finding.severity, finding.rule, path, finding.reason
