"""PreviewEnvironment: an image that runs for a pull request, for a limited time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import field

from kapsa.environments.resources.references import NamespaceStatus
from kapsa.runtime import CustomResource, Field, Spec, Status, printer_column

__all__ = ["PreviewEnvironment", "PreviewEnvironmentSpec", "PreviewEnvironmentStatus", "PreviewPhase"]

PreviewPhase = Literal["Pending", "Deploying", "Ready", "Failed"]
"""The phase of a preview."""


class PreviewEnvironmentSpec(Spec):
    """The desired state of a PreviewEnvironment."""

    pr_number: Annotated[int, Field(ge=1, le=999999, immutable=True)] = field(name="pr_number")
    """Number of the pull request. It is part of all names, so it cannot be changed."""
    branch_name: Annotated[str, Field(min_length=1, max_length=255, immutable=True)] = field(
        name="branch_name"
    )
    """Branch of the pull request. It cannot be changed."""
    image: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/-]*$")]
    """The image without its tag."""
    image_tag: Annotated[
        str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    ] = field(name="image_tag")
    """Tag of the image. A new tag is rolled out."""
    ttl_seconds: Annotated[int, Field(ge=60, le=86400)] | None = field(default=None, name="ttl_seconds")
    """Seconds from its creation to its deletion. Unlimited if absent."""


class PreviewEnvironmentStatus(Status):
    """The observed state of a PreviewEnvironment."""

    phase: PreviewPhase = "Pending"
    """The phase of the preview."""
    url: str | None = None
    """URL of the preview."""
    namespace: NamespaceStatus | None = None
    """The namespace of the preview."""
    image: str | None = None
    """The deployed image."""
    expires_at: datetime | None = None
    """Time at which the preview is deleted."""
    kept_until: datetime | None = None
    """Time until which it stays although it has expired, because too many others have at once."""
    ready_at: datetime | None = None
    """Time at which the preview was first ready."""


class PreviewEnvironment(
    CustomResource[PreviewEnvironmentSpec, PreviewEnvironmentStatus],
    group="devops.orima.com",
    version="v1",
    short_names=["preview"],
    categories=["kapsa"],
    columns=[
        printer_column("PR", ".spec.pr_number", type="integer"),
        printer_column("Branch", ".spec.branch_name"),
        printer_column("Tag", ".spec.image_tag"),
        printer_column("Phase", ".status.phase"),
        printer_column("URL", ".status.url"),
        printer_column("Expires", ".status.expiresAt", type="date", priority=1),
        printer_column("Age", ".metadata.creationTimestamp", type="date"),
    ],
):
    """A preview of a pull request: an image in a namespace of its own, with a URL of its own."""
