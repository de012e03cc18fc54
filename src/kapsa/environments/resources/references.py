"""How one resource names another."""

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
"""What an object may be called."""
DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""One part of a host name, or a namespace's name."""
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
    """An object by its name. It is in the namespace of whoever names it, or in none if its kind has none."""

    name: ObjectName
    """The object's name."""


class SecretReference(Part):
    """A Secret in any namespace. Only resources that administrators write have one."""

    name: ObjectName
    """The Secret's name."""
    namespace: DnsLabel = "kapsa-system"
    """The namespace that it is in."""


class NamespaceStatus(Part):
    """The namespace that was made for a resource."""

    name: str
    """Its name."""
    uid: str
    """Its identity: a namespace of the same name with another one is not ours."""
