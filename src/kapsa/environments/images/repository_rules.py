"""The rules of a Registry: the namespaces that may use it, their repositories, and their pull credentials.

Without rules of its own, a Registry gives each namespace the repositories under the namespace's name. The
credentials to push never reach a tenant; those to pull come from another Secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kapsa.adapters.errors import Refused
from kapsa.adapters.oci.image_reference import DOCKER_HUB, ImageReference, split_endpoint
from kapsa.environments.resources import (
    ImagePullSecret,
    Registry,
    RepositoryGrant,
    SecretReference,
    TeamNamespace,
)

__all__ = [
    "ANY",
    "image_refusal",
    "own_credentials",
    "pull_credentials",
    "pull_secret_names",
    "registry_refusal",
]

ANY = "*"
"""The prefix of every repository below the path of the endpoint."""
_NAMESPACE = "{namespace}"
_OWN = (RepositoryGrant(prefixes=(_NAMESPACE,)),)
_PUBLIC_ON_HUB = "library/"
"""The official images of Docker Hub, which everybody can pull."""
_IMAGE_ID = re.compile(r"library/(sha256|sha384|sha512|[0-9a-f]{64})")
"""The ID of an image, once it is read as a name."""
_IMPLIED_PORTS = (80, 443)


def registry_refusal(registry: Registry, team: TeamNamespace, image: ImageReference | None = None) -> str:
    """Return why a namespace may not use the Registry, or this image in it; empty if it may."""
    allowed = registry.spec.allowed_namespaces
    if allowed is not None and not allowed.includes(team):
        return f"Registry {registry.name} is not open to namespace {team.name}"
    if image is None or any(_covers(prefix, image, registry) for prefix in _prefixes(registry, team)):
        return ""
    prefixes = ", ".join(_prefixes(registry, team)) or "none"
    return (
        f"namespace {team.name} may not use repository {image.path} of Registry {registry.name}, only those under: "
        f"{prefixes}"
    )


def image_refusal(registries: Iterable[Registry], team: TeamNamespace, text: str) -> str:
    """Return why a namespace may not run this image; empty if it may.

    The rules of a Registry with credentials, or with rules of its own, hold whether or not the project names it: a
    node may have the image already, or credentials of its own, as in many clouds.
    """
    private = [registry for registry in registries if _is_private(registry)]
    if not private:
        return ""
    try:
        image = ImageReference.parse(text)
    except Refused as error:
        return str(error)  # container runtimes accept more, and might find it in any of these Registries
    if image.registry == DOCKER_HUB and _IMAGE_ID.fullmatch(image.path):
        return f"{text[:120]!r} is the ID of an image, which a node may have from any repository: name its repository"
    if image.registry == DOCKER_HUB and image.path.startswith(_PUBLIC_ON_HUB):
        return ""
    host = _host(image.registry)
    refusals = [
        registry_refusal(registry, team, image)
        for registry in private
        if _host(split_endpoint(registry.spec.endpoint)[0]) == host
    ]
    # One server may have a Registry for each team.
    return refusals[0] if refusals and all(refusals) else ""


def _is_private(registry: Registry) -> bool:
    """Return whether the Registry has images that not every team may run."""
    spec, pull = registry.spec, registry.spec.image_pull_secret
    has_credentials = spec.auth is not None or pull.secret_ref is not None or not pull.generate_per_namespace
    return has_credentials or spec.allowed_namespaces is not None or bool(spec.repositories)


def pull_secret_names(registries: Iterable[Registry]) -> list[str]:
    """Return the names of the Secrets for pulling images, also those of Registries that a project does not use yet."""
    return sorted({ImagePullSecret().name, *(each.spec.image_pull_secret.name for each in registries)})


def pull_credentials(registry: Registry, team: TeamNamespace) -> SecretReference | None:
    """Return the Secret with which a namespace pulls images; None if the Registry has none for it.

    The Secret with the credentials to push is never returned.
    """
    return own_credentials(registry, team) or _allowed(
        registry, team, registry.spec.image_pull_secret.secret_ref
    )


def own_credentials(registry: Registry, team: TeamNamespace) -> SecretReference | None:
    """Return the Secret with which only this namespace pulls; None if the Registry has none for it.

    Builds get it, since their code may read it: credentials that teams share are not for builds.
    """
    own = [grant.pull_secret_ref for grant in _grants(registry, team) if grant.pull_secret_ref is not None]
    return _allowed(registry, team, own[0] if own else None)


def _allowed(
    registry: Registry, team: TeamNamespace, reference: SecretReference | None
) -> SecretReference | None:
    """Return the Secret unless it is the one to push, or the Registry is closed to the team."""
    pushing = registry.spec.auth.secret_ref if registry.spec.auth is not None else None
    return reference if reference != pushing and not registry_refusal(registry, team) else None


def _grants(registry: Registry, team: TeamNamespace) -> list[RepositoryGrant]:
    return [
        grant
        for grant in registry.spec.repositories or _OWN
        if grant.namespaces is None or grant.namespaces.includes(team)
    ]


def _prefixes(registry: Registry, team: TeamNamespace) -> list[str]:
    return [
        prefix.replace(_NAMESPACE, team.name)
        for grant in _grants(registry, team)
        for prefix in grant.prefixes
    ]


def _covers(prefix: str, image: ImageReference, registry: Registry) -> bool:
    """Return whether a repository is the prefix or below it, from the path of the Registry's endpoint on."""
    base = split_endpoint(registry.spec.endpoint)[1]
    if prefix == ANY and not base:
        return True
    path = base if prefix == ANY else f"{base}/{prefix}".strip("/")
    return image.path == path or image.path.startswith(f"{path}/")


def _host(registry: str) -> str:
    """Return the host of a registry, with its port unless HTTP or HTTPS imply it, in one spelling."""
    host, _, port = registry.lower().rpartition(":")
    if not port.isdecimal() or not host:
        return split_endpoint(registry)[0]
    return split_endpoint(host)[0] if int(port) in _IMPLIED_PORTS else f"{host}:{int(port)}"
