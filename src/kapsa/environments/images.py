"""Images of any registry: one client for each registry and set of credentials, so that tokens are used again."""

from __future__ import annotations

import hashlib

import msgspec

from kapsa.environments.image_reference import ImageReference, split_endpoint
from kapsa.environments.image_registry import ImageRegistry
from kapsa.environments.outgoing import Outgoing
from kapsa.environments.registry_credentials import RegistryCredentials
from kapsa.runtime.clock import Clock

__all__ = ["RegistryImages"]

_KEPT = 100


class RegistryImages:
    """Asks registries for digests."""

    def __init__(self, outgoing: Outgoing, *, clock: Clock | None = None) -> None:
        self._outgoing = outgoing
        self._clock = clock
        self._registries: dict[str, ImageRegistry] = {}

    async def digest(
        self,
        image: ImageReference,
        *,
        endpoint: str = "",
        credentials: RegistryCredentials | None = None,
        insecure: bool = False,
    ) -> str | None:
        """The digest of an image; None if the registry says that it has none.

        :raises OutsideError: nobody can tell.
        """
        # Credentials go to the registry that they are for, and to no other that an image may name.
        ours = split_endpoint(endpoint)[0] == image.registry
        return await self._registry(
            endpoint if ours else image.registry,
            credentials if ours else None,
            insecure=insecure and ours,
        ).digest(image)

    def _registry(
        self, endpoint: str, credentials: RegistryCredentials | None, *, insecure: bool
    ) -> ImageRegistry:
        who = msgspec.json.encode(credentials) if credentials is not None else b""
        key = f"{endpoint} {insecure} {hashlib.sha256(who).hexdigest()}"
        known = self._registries.get(key)
        if known is None:
            if len(self._registries) >= _KEPT:
                self._registries.clear()
            known = ImageRegistry(
                endpoint, self._outgoing, credentials=credentials, insecure=insecure, clock=self._clock
            )
            self._registries[key] = known
        return known
