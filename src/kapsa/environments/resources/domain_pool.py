"""DomainPool: domains under which environments get their hosts, and who holds which."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from kapsa.environments.resources.references import DnsLabel, DnsName, ObjectName
from kapsa.runtime import CustomResource, Field, Part, Spec, Status, printer_column

__all__ = [
    "Allocation",
    "AllocationPolicy",
    "CertManager",
    "DomainCount",
    "DomainPool",
    "DomainPoolSpec",
    "DomainPoolStatus",
    "IssuerReference",
    "Strategy",
]

Strategy = Literal["round-robin", "random", "least-used"]
"""How the base domain of a host is chosen, where there are several."""


class IssuerReference(Part):
    """An issuer of cert-manager."""

    name: ObjectName
    """Its name."""
    kind: Literal["ClusterIssuer", "Issuer"] = "ClusterIssuer"
    """Its kind."""


class CertManager(Part):
    """Where certificates come from."""

    issuer_ref: IssuerReference
    """The issuer that signs them."""


class AllocationPolicy(Part):
    """How hosts are given out."""

    strategy: Strategy = "round-robin"
    """Which of the base domains the next host is under."""
    reserved_subdomains: Annotated[tuple[DnsLabel, ...], Field(list_type="set", max_length=1000)] = ()
    """Names that nobody gets, such as www or admin, nor anything below them."""


class DomainPoolSpec(Spec):
    """Which domains there are."""

    base_domains: Annotated[tuple[DnsName, ...], Field(list_type="set", min_length=1, max_length=50)]
    """The domains. A host is one name below one of them, so that a wildcard certificate covers it."""
    cert_manager: CertManager | None = None
    """Who signs certificates; the operator's own setting if absent."""
    wildcard_secret_name: ObjectName | None = None
    """A Secret in the operator's namespace with a wildcard certificate; hosts use it instead of their own."""
    allocation_policy: AllocationPolicy = AllocationPolicy()
    """How hosts are given out."""


class Allocation(Part):
    """A host and who holds it."""

    host: str
    """The host."""
    project: str = ""
    """The project's namespace and name."""
    environment: str
    """The environment's namespace and name."""
    uid: str
    """The environment's identity: the host goes with it."""


class DomainCount(Part):
    """How many hosts there are under a domain."""

    domain: str
    """The base domain."""
    allocated: int
    """How many hosts under it are held."""


class DomainPoolStatus(Status):
    """Who holds which host."""

    allocations: Annotated[list[Allocation], Field(map_keys=["host"])] = field(default_factory=list)
    """The hosts that are held."""
    allocated: int = 0
    """How many there are."""
    domains: Annotated[list[DomainCount], Field(map_keys=["domain"])] = field(default_factory=list)
    """How many there are under each base domain."""
    last_domain: str | None = None
    """The base domain of the last host: round-robin goes on after it."""


class DomainPool(
    CustomResource[DomainPoolSpec, DomainPoolStatus],
    group="kapsa-project.io",
    version="v1alpha1",
    scope="Cluster",
    short_names=["dp"],
    categories=["kapsa"],
    columns=[
        printer_column("Domains", ".spec.baseDomains"),
        printer_column("Strategy", ".spec.allocationPolicy.strategy", priority=1),
        printer_column("Allocated", ".status.allocated", type="integer"),
        printer_column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        printer_column("Age", ".metadata.creationTimestamp", type="date"),
    ],
):
    """Domains under which environments get their hosts. Administrators write it."""
