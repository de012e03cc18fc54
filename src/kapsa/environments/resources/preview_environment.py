"""PreviewEnvironment: run this image for this pull request, for as long as asked."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import field

from kapsa.environments.resources.references import NamespaceStatus
from kapsa.runtime import CustomResource, Field, Spec, Status, printer_column

__all__ = ["PreviewEnvironment", "PreviewEnvironmentSpec", "PreviewEnvironmentStatus", "PreviewPhase"]

PreviewPhase = Literal["Pending", "Deploying", "Ready", "Failed"]
"""How far a preview is."""


class PreviewEnvironmentSpec(Spec):
    """What to run, and for which pull request."""

    pr_number: Annotated[int, Field(ge=1, le=999999, immutable=True)] = field(name="pr_number")
    """The pull request. It names everything that is made, so it cannot be changed."""
    branch_name: Annotated[str, Field(min_length=1, max_length=255, immutable=True)] = field(
        name="branch_name"
    )
    """The pull request's branch. It cannot be changed."""
    image: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/-]*$")]
    """The image, without its tag."""
    image_tag: Annotated[
        str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    ] = field(name="image_tag")
    """The image's tag. A new one is rolled out."""
    ttl_seconds: Annotated[int, Field(ge=60, le=86400)] | None = field(default=None, name="ttl_seconds")
    """Seconds after its creation when it goes by itself; it stays until it is deleted if absent."""


class PreviewEnvironmentStatus(Status):
    """How far it is, and where it is reached."""

    phase: PreviewPhase = "Pending"
    """How far it is."""
    url: str | None = None
    """Where it is reached."""
    namespace: NamespaceStatus | None = None
    """The namespace that was made for it."""
    image: str | None = None
    """The image that is deployed."""
    expires_at: datetime | None = None
    """When it goes by itself."""
    ready_at: datetime | None = None
    """When it was first ready."""


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
    """A preview of a pull request: its image in a namespace of its own, at an address of its own."""
