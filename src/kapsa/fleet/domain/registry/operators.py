"""Managed operators and their versions: a Helm chart, its values, and the facts learned from rendering it."""

import uuid
from datetime import datetime
from typing import Any

import msgspec

__all__ = [
    "ChartFacts",
    "ChartSource",
    "HttpChart",
    "ManagedOperator",
    "OciChart",
    "OperatorVersion",
    "UploadedChart",
]


class HttpChart(
    msgspec.Struct, frozen=True, rename="camel", tag="http", tag_field="type", forbid_unknown_fields=True
):
    """A chart in an HTTP chart repository (one with an index.yaml)."""

    repository: str
    chart: str


class OciChart(
    msgspec.Struct, frozen=True, rename="camel", tag="oci", tag_field="type", forbid_unknown_fields=True
):
    """A chart in an OCI registry; its tags are the versions."""

    reference: str
    """`oci://registry.example.com/charts/cert-manager`, without a tag."""


class UploadedChart(
    msgspec.Struct, frozen=True, rename="camel", tag="upload", tag_field="type", forbid_unknown_fields=True
):
    """A chart whose archives are uploaded, one for each version."""

    chart: str


ChartSource = HttpChart | OciChart | UploadedChart


class ManagedOperator(msgspec.Struct, frozen=True, rename="camel"):
    """An operator that the fleet may deploy."""

    id: uuid.UUID
    name: str
    namespace: str
    """The namespace that its release is installed in."""
    source: ChartSource
    values: dict[str, Any]
    environment_values: dict[str, dict[str, Any]]
    """Values for each environment, by its name; they win over `values`."""
    created_at: datetime
    created_by: str
    paused_reason: str = ""
    """Non-empty while new deployments are paused, for instance during a rollback."""
    secret_paths: tuple[tuple[str, ...], ...] = ()
    """The paths of secret values, key by key. The values themselves are sealed, and masked wherever this is shown."""
    has_credentials: bool = False
    """True if a login for the chart's repository is stored. It is sealed and never shown."""
    version: int = 1
    cluster_values: dict[str, dict[str, Any]] = {}
    """Values for single clusters, by their names; they win over those of the environment."""


class ChartFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Facts learned from rendering and linting a chart."""

    crds_in_crds: tuple[str, ...] = ()
    crds_in_templates: tuple[str, ...] = ()
    cluster_scoped: tuple[str, ...] = ()
    """`Kind/name` of each cluster-scoped object that is not a CRD."""
    webhooks: tuple[str, ...] = ()
    """`Kind/name` of each webhook configuration, and `CustomResourceDefinition/name` of each conversion webhook."""
    deterministic: bool = True
    """False if two renders of the same values differ, as with generated certificates."""
    names_follow_release: bool = True
    """False if a cluster-scoped name does not change with the release: blue-green suffixes it, if it can."""
    blue_green_refusal: str = ""
    """The reason why blue-green cannot roll the chart out; empty if it can, with the values of the registration."""
    kube_version: str = ""
    app_version: str = ""


class OperatorVersion(msgspec.Struct, frozen=True, rename="camel"):
    """One version of an operator: an archive kept by its digest."""

    operator_id: uuid.UUID
    version: str
    """A semantic version, as the chart declares it."""
    chart_digest: str
    """`sha256:…` of the archive."""
    facts: ChartFacts
    created_at: datetime
    created_by: str
    withdrawn_reason: str = ""
    """Non-empty when this version was rolled back as bad: nothing deploys it again without an override."""
    migration_guide: str = ""
