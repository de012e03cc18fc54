"""Access to a Registry: its endpoint, and its credentials, which are read when needed and never stored."""

from __future__ import annotations

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.registries import RegistryAccess
from kapsa.environments.resources import Registry, SecretReference
from kapsa.runtime import Client, NotFound

__all__ = ["access_to", "login_to"]

SECRET = "v1/Secret"  # noqa: S105 - a kind


async def access_to(registry: Registry | None, client: Client) -> RegistryAccess:
    """Return the access to this Registry; without a Registry, anonymous access by the image's own name.

    Raises AuthFailed if the Registry names a Secret that does not exist or holds no credentials.
    """
    if registry is None:
        return RegistryAccess()
    return RegistryAccess(
        endpoint=registry.spec.endpoint,
        credentials=await login_to(
            registry, registry.spec.auth.secret_ref if registry.spec.auth is not None else None, client
        ),
        insecure=registry.spec.insecure,
    )


async def login_to(
    registry: Registry, reference: SecretReference | None, client: Client
) -> RegistryCredentials | None:
    """Return the login to this Registry in a Secret; None without a Secret.

    Raises AuthFailed if the Secret does not exist or holds no credentials.
    """
    if reference is None:
        return None
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
