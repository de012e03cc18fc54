"""Images of any registry: one client for each registry and set of credentials, so that tokens are used again.

`RememberedImages` knows what was found before: a commit's image does not change, so nobody need be asked again. What is
deleted is forgotten.
"""

from __future__ import annotations

import hashlib
from typing import Unpack

import msgspec

from kapsa.adapters.http.client import HttpClient
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference, split_endpoint
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.environments.ports import Images, RegistryAccess
from kapsa.runtime import Clock

__all__ = ["RegistryImages", "RememberedImages"]

_KEPT, _KEPT_DIGESTS = 100, 10_000


class RegistryImages:
    """Asks registries."""

    def __init__(self, outgoing: HttpClient, *, clock: Clock | None = None) -> None:
        self._outgoing = outgoing
        self._clock = clock
        self._registries: dict[str, ImageRegistry] = {}

    async def digest(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> str | None:
        """The digest of an image; None if the registry says that it has none.

        :raises ExternalError: nobody can tell.
        """
        return await self._asked(image, **access).digest(image)

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        """Delete an image by its digest; False if there is none.

        :raises ExternalError: it could not be deleted.
        """
        return await self._asked(image, **access).delete(image)

    def _asked(
        self,
        image: ImageReference,
        *,
        endpoint: str = "",
        credentials: RegistryCredentials | None = None,
        insecure: bool = False,
    ) -> ImageRegistry:
        # Credentials go to the registry that they are for, and to no other that an image may name.
        ours = split_endpoint(endpoint)[0] == image.registry
        return self._registry(
            endpoint if ours else image.registry,
            credentials if ours else None,
            insecure=insecure and ours,
        )

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


class RememberedImages:
    """Images, and the digests of those that were found."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._digests: dict[str, str] = {}

    def known(self, image: ImageReference) -> str | None:
        """The digest of an image that was found before."""
        return self._digests.get(str(image))

    async def digest(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> str | None:
        """The digest of an image; None if the registry says that it has none.

        :raises ExternalError: nobody can tell.
        """
        found = await self._images.digest(image, **access)
        if found is not None:
            if len(self._digests) >= _KEPT_DIGESTS:
                self._digests.clear()
            self._digests[str(image)] = found
        return found

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        """Delete an image by its digest; False if there is none.

        :raises ExternalError: it could not be deleted.
        """
        # Forgotten first: whoever asks meanwhile has to ask the registry, whatever becomes of this.
        self._digests = {tag: digest for tag, digest in self._digests.items() if digest != image.digest}
        return await self._images.delete(image, **access)
