"""Registry: a registry of images, and the credentials for it."""

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
"""The product. All use the same protocol; they differ in the form of user names and tokens."""
ImageRetention = Literal["keep", "delete"]
"""Images are kept in the registry, or deleted with the last environment that uses them."""


class RegistryAuth(Part):
    """The credentials for the registry."""

    secret_ref: SecretReference
    """A Secret with username and password, or with .dockerconfigjson."""


class ImagePullSecret(Part):
    """The Secret with which environments pull images."""

    name: ObjectName = "kapsa-registry"
    """Name of the pull secret in each environment's namespace."""
    generate_per_namespace: bool = True
    """True to create the Secret in each namespace. Otherwise an administrator provides it."""


class RegistrySpec(Spec):
    """The desired state of a Registry."""

    type: RegistryType = "docker"
    """The product."""
    endpoint: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^(https?://)?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9._/-]*)?$",
        ),
    ]
    """Host of the registry, with its port unless it is the default one, such as registry.example.com or
    localhost:5000."""
    auth: RegistryAuth | None = None
    """The credentials. Without them, only public images are accessible."""
    insecure: bool = False
    """True to accept plain HTTP and unverified certificates."""
    image_pull_secret: ImagePullSecret = ImagePullSecret()
    """The Secret with which environments pull images."""
    image_retention: ImageRetention = "keep"
    """The fate of a deleted environment's images: keep or delete."""


class RegistryStatus(Status):
    """The observed state of a Registry."""

    verified: bool = False
    """True if the registry accepted the credentials in the last check."""
    last_verified: datetime | None = None
    """Time of the last successful check."""


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
    """A registry of container images, managed by administrators."""
