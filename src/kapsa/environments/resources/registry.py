"""Registry: a registry of images, and the credentials for it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from kapsa.environments.resources.namespace_filter import NamespaceFilter
from kapsa.environments.resources.references import ObjectName, SecretReference
from kapsa.runtime import CustomResource, Field, Part, Spec, Status, printer_column, rule

__all__ = [
    "ImagePullSecret",
    "ImageRetention",
    "Registry",
    "RegistryAuth",
    "RegistrySpec",
    "RegistryStatus",
    "RegistryType",
    "RepositoryGrant",
]

RegistryType = Literal["docker", "harbor", "gitlab", "ecr", "gcr", "acr"]
"""The product. All use the same protocol; they differ in the form of user names and tokens."""
ImageRetention = Literal["keep", "delete"]
"""Images are kept in the registry, or deleted with the last environment that uses them."""


class RegistryAuth(Part):
    """The credentials for the registry."""

    secret_ref: SecretReference
    """A Secret with username and password, or with .dockerconfigjson. The operator and builds push with it;
    it never reaches the namespace of an environment."""


class ImagePullSecret(Part):
    """The Secret with which environments pull images."""

    name: ObjectName = "kapsa-registry"
    """Name of the pull secret in each environment's namespace."""
    generate_per_namespace: bool = True
    """True to create the Secret in each namespace. Otherwise an administrator provides it."""
    secret_ref: SecretReference | None = None
    """A Secret with credentials that can only pull, which is copied to the namespaces of environments. It is
    never the Secret of auth. Without it, environments get no pull secret."""


class RepositoryGrant(Part):
    """Image repositories for the Projects of some namespaces, and the credentials to pull from them."""

    namespaces: NamespaceFilter | None = None
    """The namespaces of the Projects. If absent, all that may use the Registry."""
    prefixes: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=255,
                    pattern=r"^(\*|(\{namespace\}|[a-z0-9]+)([._/-]+(\{namespace\}|[a-z0-9]+))*)$",
                ),
            ],
            ...,
        ],
        Field(min_length=1, max_length=50),
    ]
    """Repositories, with all below them: shop stands for shop and shop/app, but not for shopping.
    {namespace} stands for the name of the namespace, and * for every repository."""
    pull_secret_ref: SecretReference | None = None
    """A Secret with credentials that can only pull from these repositories. Defaults to
    imagePullSecret.secretRef."""


_PUSHING = "must not be the Secret of auth: environments would get the credentials to push"


class RegistrySpec(
    Spec,
    rules=[
        rule(
            "!has(self.auth) || !has(self.imagePullSecret.secretRef) || self.imagePullSecret.secretRef.name != "
            "self.auth.secretRef.name || self.imagePullSecret.secretRef.__namespace__ != self.auth.secretRef.__namespace__",
            f"imagePullSecret.secretRef {_PUSHING}",
            field_path=".imagePullSecret",
        ),
        rule(
            "!has(self.auth) || !has(self.repositories) || self.repositories.all(each, !has(each.pullSecretRef) || "
            "each.pullSecretRef.name != self.auth.secretRef.name || each.pullSecretRef.__namespace__ != "
            "self.auth.secretRef.__namespace__)",
            f"repositories[].pullSecretRef {_PUSHING}",
            field_path=".repositories",
        ),
    ],
):
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
    registry.example.com:5000. The operator connects to no address of its own host, such as localhost."""
    auth: RegistryAuth | None = None
    """The credentials. Without them, only public images are accessible."""
    insecure: bool = False
    """True to accept plain HTTP and unverified certificates."""
    image_pull_secret: ImagePullSecret = ImagePullSecret()
    """The Secret with which environments pull images."""
    allowed_namespaces: NamespaceFilter | None = None
    """The namespaces whose Projects may use the Registry. All if absent."""
    repositories: Annotated[tuple[RepositoryGrant, ...], Field(max_length=100)] = ()
    """The repositories that namespaces may use. Without any, each namespace may use those under its own name,
    such as shop/app for namespace shop."""
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
