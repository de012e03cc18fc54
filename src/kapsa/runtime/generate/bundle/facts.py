"""The facts of an operator that its bundle is made from."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kapsa.runtime.generate.rbac import OperatorRights

__all__ = ["BundleFacts", "OperatorImage", "PodPort", "UnbundlableError", "WebhookEndpoint"]

_LONGEST_NAME = 52
"""Leaves room for `-webhooks` and the like in the name of a Service, and for Helm in that of a release."""
_IMAGE = re.compile(
    r"(?P<repository>[a-z0-9]([-a-z0-9._]*[a-z0-9])?(:[0-9]+(?=/))?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*)"
    r"(:(?P<tag>[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class UnbundlableError(Exception):
    """An operator cannot be bundled as requested."""

    for_the_user = True


class OperatorImage(msgspec.Struct, frozen=True):
    """A container image: a repository, and a tag or a digest."""

    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> OperatorImage:
        """Return the parts of a reference such as `registry.example.com/shop:1.2`."""
        match = _IMAGE.fullmatch(text)
        if match is None:
            raise UnbundlableError(
                f"invalid image {text!r}: use a form such as registry.example.com/shop:1.2 or shop@sha256:..."
            )
        return cls(match["repository"], match["tag"] or "", match["digest"] or "")

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


class PodPort(msgspec.Struct, frozen=True):
    """A port of the operator, and the paths that it serves there."""

    port: int
    paths: tuple[str, ...] = ()


class WebhookEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The Service through which the API server calls the operator."""

    service: str
    service_port: int
    port: int
    namespace: str = ""
    """The namespace that the operator declares for the Service; empty for its own."""
    certificate_directory: str = ""
    """The directory that the operator reads its certificates from; empty if it makes them."""


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an operator's declaration that an installation depends on."""

    name: str
    """The name of the Deployment, the service account and the roles."""
    crds: tuple[dict[str, Any], ...]
    """For an operator in NAME-system: the namespace matters to a conversion webhook only."""
    rights: OperatorRights
    metrics: PodPort | None = None
    health: PodPort | None = None
    """The liveness path, then the readiness path."""
    webhooks: WebhookEndpoint | None = None
    shutdown_grace: float = 30.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", self.name) or len(self.name) > _LONGEST_NAME:
            raise UnbundlableError(
                f"invalid name {self.name!r}: a bundle needs lower case letters, digits and dashes, at most "
                f"{_LONGEST_NAME}, starting with a letter; set the operator's name or give --name"
            )

    def home(self, requested: str = "") -> str:
        """Return the namespace to install in: the one requested, or that of the webhooks, or NAME-system."""
        declared = self.webhooks.namespace if self.webhooks is not None else ""
        if requested and declared and requested != declared:
            raise UnbundlableError(
                f"the webhooks are declared in the namespace {declared}: use that one instead of {requested}, or leave "
                "out namespace= of Webhooks"
            )
        return requested or declared or f"{self.name}-system"

    @property
    def elects(self) -> bool:
        """True if the operator elects a leader, so that several replicas may run."""
        return bool(self.rights.lease)
