"""The definition of a kind: the names, scope, version and columns that a resource class declares."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.model import Rule

__all__ = ["PrinterColumn", "ResourceDefinition", "Scale", "Scope", "pluralize", "printer_column"]

Scope = Literal["Namespaced", "Cluster"]


class PrinterColumn(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A column of `kubectl get`."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0
    """0 is always shown, a higher one only with `-o wide`."""


def printer_column(
    name: str,
    json_path: str,
    *,
    type: Literal["string", "integer", "number", "boolean", "date"] = "string",  # noqa: A002 - the CRD's own name
    description: str = "",
    format: str = "",  # noqa: A002 - the CRD's own name
    priority: int = 0,
) -> PrinterColumn:
    """Return a column of `kubectl get`: `printer_column("Ready", ".status.ready", type="integer")`."""
    return PrinterColumn(
        name=name, type=type, json_path=json_path, description=description, format=format, priority=priority
    )


class Scale(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The paths of the replicas, for `kubectl scale` and autoscalers."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class ResourceDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations of a resource class about its kind, apart from the types of its spec and status."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    scope: Scope
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    rules: tuple[Rule, ...] = ()
    scale: Scale | None = None
    selectable_fields: tuple[str, ...] = ()
    """JSON paths that field selectors may use, such as .spec.image."""
    served: bool = True
    storage: bool | None = None
    """True if this version is the stored one; None if the other versions decide it."""
    hub: bool = False
    """True if the other versions convert to and from this one."""
    deprecated: str = ""
    """The warning for clients of this version; empty if it is not deprecated."""

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.group, self.version, self.kind)

    @property
    def crd_name(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.plural}.{self.group}"

    @property
    def namespaced(self) -> bool:
        return self.scope == "Namespaced"


def pluralize(singular: str) -> str:
    """Return the English plural, as Kubernetes guesses it."""
    if re.search(r"(s|x|z|ch|sh)$", singular):
        return singular + "es"
    if re.search(r"[^aeiou]y$", singular):
        return singular[:-1] + "ies"
    return singular + "s"
