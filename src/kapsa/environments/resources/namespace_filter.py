"""Filters of namespaces: the teams that may use a resource of the administrator, by name or by label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from kapsa.environments.resources.references import DnsLabel
from kapsa.runtime import Field, Part

__all__ = ["LabelRequirement", "NamespaceFilter", "NamespaceLabels", "TeamNamespace"]

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelText = Annotated[str, Field(max_length=63)]


class TeamNamespace(msgspec.Struct, frozen=True):
    """The namespace of a team, in which its Projects are."""

    name: str
    labels: Mapping[str, str] = {}


class LabelRequirement(Part):
    """A requirement for one label."""

    key: LabelKey
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """The relation between the label and the values."""
    values: Annotated[tuple[LabelText, ...], Field(max_length=100)] = ()
    """Values for In and NotIn."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class NamespaceLabels(Part):
    """A label selector. All its requirements must hold; an empty one selects every namespace."""

    match_labels: Annotated[Mapping[str, LabelText], Field(max_length=50)] = {}
    """Labels with exactly these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=50)] = ()
    """Further requirements."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet all requirements."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            each.holds(labels) for each in self.match_expressions
        )


class NamespaceFilter(Part):
    """Namespaces by name or by label: one of the two suffices. Without both, it includes none."""

    names: Annotated[tuple[DnsLabel, ...], Field(list_type="set", max_length=1000)] = ()
    """Names of namespaces."""
    selector: NamespaceLabels | None = None
    """Labels of namespaces. Use labels that only administrators can set, such as
    kubernetes.io/metadata.name."""

    def includes(self, team: TeamNamespace) -> bool:
        """Return whether a namespace is among them."""
        return team.name in self.names or (self.selector is not None and self.selector.selects(team.labels))
