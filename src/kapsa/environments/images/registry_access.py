"""How a Registry is asked: at its endpoint, with credentials that are read when they are needed and kept nowhere."""

from __future__ import annotations

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.registries import RegistryAccess
from kapsa.environments.resources import Registry
from kapsa.runtime import Client, NotFound

__all__ = ["access_to"]

SECRET = "v1/Secret"  # noqa: S105 - a kind


async def access_to(registry: Registry | None, client: Client) -> RegistryAccess:
    """How images in this Registry are asked for; without one, by their own names and as nobody.

    :raises AuthFailed: it names a Secret that is not there, or holds none.
    """
    if registry is None:
        return RegistryAccess()
    return RegistryAccess(
        endpoint=registry.spec.endpoint,
        credentials=await _credentials(registry, client),
        insecure=registry.spec.insecure,
    )


async def _credentials(registry: Registry, client: Client) -> RegistryCredentials | None:
    if registry.spec.auth is None:
        return None
    reference = registry.spec.auth.secret_ref
    try:
        secret = await client.get(SECRET, reference.name, namespace=reference.namespace)
    except NotFound:
        raise AuthFailed(
            f"there is no Secret {reference.name} in namespace {reference.namespace}, which Registry "
            f"{registry.name} names",
            hint="Have an administrator create it.",
            reason="CredentialsMissing",
        ) from None
    return RegistryCredentials.from_secret(secret, registry.spec.endpoint)
