"""Registry: where images are pushed to and pulled from, and how to log in there."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from kapsa.environments.resources.references import ObjectName, SecretReference
from kapsa.runtime import CustomResource, Field, Part, Spec, Status, printer_column

__all__ = [
    "ImagePullSecret",
    "ImageRetention",
    "Registry",
    "RegistryAuth",
    "RegistrySpec",
    "RegistryStatus",
    "RegistryType",
]

RegistryType = Literal["docker", "harbor", "gitlab", "ecr", "gcr", "acr"]
"""Whose registry it is. All speak the same protocol; they differ in what user names and tokens look like."""
ImageRetention = Literal["keep", "delete"]
"""Images stay in the registry, or those that no other environment has are deleted."""


class RegistryAuth(Part):
    """How to log in."""

    secret_ref: SecretReference
    """A Secret with username and password, or with .dockerconfigjson."""


class ImagePullSecret(Part):
    """What environments pull images with."""

    name: ObjectName = "kapsa-registry"
    """The name of the pull secret in each environment's namespace."""
    generate_per_namespace: bool = True
    """Whether it is made there; else whoever runs the cluster sees to it."""


class RegistrySpec(Spec):
    """Which registry."""

    type: RegistryType = "docker"
    """Whose it is."""
    endpoint: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^(https?://)?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9._/-]*)?$",
        ),
    ]
    """Its host, with a port if it is not the usual one, such as registry.example.com or localhost:5000."""
    auth: RegistryAuth | None = None
    """How to log in; without it only what is public works."""
    insecure: bool = False
    """Whether plain http and certificates that nobody vouches for are accepted."""
    image_pull_secret: ImagePullSecret = ImagePullSecret()
    """What environments pull images with."""
    image_retention: ImageRetention = "keep"
    """What becomes of the images of environments that are deleted."""


class RegistryStatus(Status):
    """Whether logging in works."""

    verified: bool = False
    """Whether the registry took the credentials when it was last asked."""
    last_verified: datetime | None = None
    """When it last did."""


class Registry(
    CustomResource[RegistrySpec, RegistryStatus],
    group="kapsa-project.io",
    version="v1alpha1",
    plural="registries",
    scope="Cluster",
    short_names=["reg"],
    categories=["kapsa"],
    columns=[
        printer_column("Type", ".spec.type"),
        printer_column("Endpoint", ".spec.endpoint"),
        printer_column("Verified", ".status.verified", type="boolean"),
        printer_column("Last verified", ".status.lastVerified", type="date"),
    ],
):
    """A registry of container images. Administrators write it."""
