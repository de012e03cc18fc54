"""An operator as text."""

from __future__ import annotations

import typer

from kapsa.cli.tables import print_fields, printable
from kapsa.fleet.domain.registry.operators import ChartSource, HttpChart, ManagedOperator, OciChart

__all__ = ["describe_operator", "source_text"]


def source_text(source: ChartSource) -> str:
    """Return where a chart comes from, in one word."""
    match source:
        case HttpChart():
            return f"{source.repository}/{source.chart}"
        case OciChart():
            return source.reference
        case _:
            return f"{source.chart} (uploaded)"


def describe_operator(operator: ManagedOperator) -> None:
    """Print an operator with its values."""
    print_fields(
        [
            ("name", operator.name),
            ("id", operator.id),
            ("namespace", operator.namespace),
            ("chart", source_text(operator.source)),
            ("paused", operator.paused_reason),
            ("credentials", "stored, sealed" if operator.has_credentials else ""),
            ("created", f"{operator.created_at:%Y-%m-%d %H:%M} UTC by {operator.created_by}"),
        ]
    )
    for title, values in (
        ("values", operator.values),
        *operator.environment_values.items(),
        *operator.cluster_values.items(),
    ):
        if values:
            from kapsa.runtime import to_yaml

            typer.echo(f"\n{printable(title)}:")
            for line in to_yaml([values]).splitlines():
                typer.echo(f"  {printable(line)}")
