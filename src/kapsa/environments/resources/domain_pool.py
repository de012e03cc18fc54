"""DomainPool: the domains of environments' hosts, and their allocation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from kapsa.environments.resources.namespace_filter import NamespaceFilter
from kapsa.environments.resources.references import DnsLabel, DnsName, ObjectName
from kapsa.runtime import CustomResource, Field, Part, Spec, Status, printer_column, rule

__all__ = [
    "Allocation",
    "AllocationPolicy",
    "CertManager",
    "DomainCount",
    "DomainPool",
    "DomainPoolSpec",
    "DomainPoolStatus",
    "IssuerReference",
    "SharedService",
    "SharedServicePort",
    "Strategy",
    "SubdomainGrant",
]

Strategy = Literal["round-robin", "random", "least-used"]
"""The choice among several base domains."""


class IssuerReference(Part):
    """A cert-manager issuer."""

    name: ObjectName
    """Name of the issuer."""
    kind: Literal["ClusterIssuer", "Issuer"] = "ClusterIssuer"
    """Kind of the issuer."""


class CertManager(Part):
    """The source of certificates."""

    issuer_ref: IssuerReference
    """The issuer of the certificates."""


class SubdomainGrant(Part):
    """Labels of hosts for the Projects of some namespaces, and for no others."""

    namespaces: NamespaceFilter
    """The namespaces of the Projects."""
    labels: Annotated[
        tuple[
            Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$")],
            ...,
        ],
        Field(list_type="set", min_length=1, max_length=50),
    ]
    """Patterns of labels, such as shop or shop-*."""


class AllocationPolicy(Part):
    """The policy for allocating hosts."""

    strategy: Strategy = "round-robin"
    """The choice of the base domain for the next host."""
    reserved_subdomains: Annotated[tuple[DnsLabel, ...], Field(list_type="set", max_length=1000)] = ()
    """Labels that are never allocated, such as www or admin, nor any host under them."""
    subdomains: Annotated[tuple[SubdomainGrant, ...], Field(max_length=100)] = ()
    """Labels for certain namespaces. Those in an entry get only its labels, and nobody else gets them; all
    other namespaces share the rest."""


PrivateRange = Annotated[
    str,
    Field(
        max_length=43,
        rules=[
            rule(
                "isCIDR(self) && ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7'].exists("
                "range, cidr(range).containsCIDR(self))",
                "must be a private address range such as 10.20.0.0/24: within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, "
                "100.64.0.0/10 or fc00::/7",
            )
        ],
    ),
]
"""A range of private addresses. The others are reachable anyway, or must not be: metadata services are link-local."""


class SharedServicePort(Part):
    """A port of a shared service."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """Number of the port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port."""


class SharedService(
    Part,
    rules=[
        rule(
            "!has(self.projects) || size(self.projects) == 0 || has(self.namespaces)",
            "projects needs namespaces: any team can create a Project of that name",
        )
    ],
):
    """A service at private addresses that environments may reach, such as a shared database."""

    name: DnsLabel
    """Name of the service."""
    cidrs: Annotated[tuple[PrivateRange, ...], Field(list_type="set", min_length=1, max_length=20)]
    """Private address ranges of the service."""
    ports: Annotated[tuple[SharedServicePort, ...], Field(max_length=20)] = ()
    """Ports of the service. All if absent."""
    namespaces: NamespaceFilter | None = None
    """The namespaces whose Projects reach the service. All that may use the pool if absent."""
    projects: Annotated[tuple[ObjectName, ...], Field(list_type="set", max_length=100)] = ()
    """Names of the Projects that reach it, in these namespaces, which are required with it. All if absent."""


class DomainPoolSpec(Spec):
    """The desired state of a DomainPool."""

    base_domains: Annotated[tuple[DnsName, ...], Field(list_type="set", min_length=1, max_length=50)]
    """The base domains. A host is one label under a base domain, so that a wildcard certificate covers it."""
    cert_manager: CertManager | None = None
    """The source of certificates. Defaults to the operator's setting."""
    wildcard_secret_name: ObjectName | None = None
    """Name of a Secret in the operator's namespace with a wildcard certificate for the hosts. The ingress
    controller must serve it as its default certificate: it is never copied to an environment."""
    allowed_namespaces: NamespaceFilter | None = None
    """The namespaces whose Projects get hosts from the pool. All if absent."""
    allocation_policy: AllocationPolicy = AllocationPolicy()
    """The policy for allocating hosts."""
    shared_services: Annotated[tuple[SharedService, ...], Field(map_keys=["name"], max_length=50)] = ()
    """Services at private addresses that the environments of Projects which may use the pool can reach."""


class Allocation(Part):
    """A host allocated to an environment."""

    host: str
    """The host."""
    project: str = ""
    """Namespace and name of the project."""
    kind: Literal["Environment", "PreviewEnvironment"] = "Environment"
    """Kind of the resource that holds the host."""
    environment: str
    """Namespace and name of the environment."""
    uid: str
    """UID of the environment. The host is released with it."""


class DomainCount(Part):
    """The number of hosts under a domain."""

    domain: str
    """The base domain."""
    allocated: int
    """Number of allocated hosts."""


class DomainPoolStatus(Status):
    """The observed state of a DomainPool."""

    allocations: Annotated[list[Allocation], Field(map_keys=["host"])] = field(default_factory=list)
    """The allocated hosts."""
    allocated: int = 0
    """Number of allocated hosts."""
    domains: Annotated[list[DomainCount], Field(map_keys=["domain"])] = field(default_factory=list)
    """Number of allocated hosts under each base domain."""
    last_domain: str | None = None
    """Base domain of the last host. The round-robin strategy continues after it."""


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
    """Domains for the hosts of environments, managed by administrators."""
