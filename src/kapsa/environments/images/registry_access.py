"""Access to a Registry: its endpoint, and its credentials, which are read when needed and never stored."""

from __future__ import annotations

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.registries import RegistryAccess
from kapsa.environments.resources import Registry
from kapsa.runtime import Client, NotFound

__all__ = ["access_to"]

SECRET = "v1/Secret"  # noqa: S105 - a kind


async def access_to(registry: Registry | None, client: Client) -> RegistryAccess:
    """Return the access to this Registry; without a Registry, anonymous access by the image's own name.

    Raises AuthFailed if the Registry names a Secret that does not exist or holds no credentials.
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
            f"Secret {reference.name}, which Registry {registry.name} refers to, does not exist in namespace "
            f"{reference.namespace}",
            hint="Ask an administrator to create it.",
            reason="CredentialsMissing",
        ) from None
    return RegistryCredentials.from_secret(secret, registry.spec.endpoint)
