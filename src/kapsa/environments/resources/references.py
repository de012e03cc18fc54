"""References from one resource to another."""

from __future__ import annotations

from typing import Annotated

from kapsa.runtime import Field, Part

__all__ = ["DnsLabel", "DnsName", "LocalReference", "NamespaceStatus", "ObjectName", "SecretReference"]

ObjectName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of an object."""
DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""One label of a host name, or the name of a namespace."""
DnsName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$",
    ),
]
"""A host name or a domain."""


class LocalReference(Part):
    """A reference to an object by name: in the same namespace, or cluster-scoped."""

    name: ObjectName
    """Name of the object."""


class SecretReference(Part):
    """A reference to a Secret in any namespace. Only kinds for administrators have one."""

    name: ObjectName
    """Name of the Secret."""
    namespace: DnsLabel = "kapsa-system"
    """Namespace of the Secret."""


class NamespaceStatus(Part):
    """The namespace of a resource."""

    name: str
    """Name of the namespace."""
    uid: str = ""
    """UID of the namespace. A namespace of the same name with another UID belongs to another owner. Empty while
    the namespace is being created."""
