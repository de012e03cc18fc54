"""Images in any registry: one client for each registry and set of credentials, so that tokens are reused.

`DigestCache` keeps the digests that a registry returned, for those with the same access only. The image of a commit does not change, so its digest
need not be requested again. A deleted image is dropped from the cache.
"""

from __future__ import annotations

import hashlib
from typing import Protocol, TypedDict, Unpack

import msgspec

from kapsa.adapters.http.client import HttpClient
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference, split_endpoint
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.runtime import Clock

__all__ = ["DigestCache", "ImageRegistries", "Images", "RegistryAccess"]

_MAX_CLIENTS, _MAX_DIGESTS = 100, 10_000


class RegistryAccess(TypedDict, total=False):
    """The address of a registry and the credentials for it."""

    endpoint: str
    """The registry that the credentials are for. Images in other registries are requested without them."""
    credentials: RegistryCredentials | None
    """The login, or None for anonymous access."""
    insecure: bool
    """True if certificates are not verified and plain HTTP is allowed."""


class Images(Protocol):
    """Access to images in registries."""

    async def digest(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> str | None:
        """Return the digest of an image, or None if the registry does not have it.

        Raises `ExternalError` when the registry gave no clear answer.
        """
        ...

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        """Delete an image by its digest. Return False if the registry does not have it.

        Raises `ExternalError` when the image could not be deleted.
        """
        ...


class ImageRegistries:
    """Access to images over HTTP, with one client for each registry and set of credentials."""

    def __init__(self, http: HttpClient, *, clock: Clock | None = None) -> None:
        self._http = http
        self._clock = clock
        self._clients: dict[str, ImageRegistry] = {}

    async def digest(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> str | None:
        """Return the digest of an image, or None if the registry does not have it.

        Raises `ExternalError` when the registry gave no clear answer.
        """
        return await self._client_for(image, **access).digest(image)

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        """Delete an image by its digest. Return False if the registry does not have it.

        Raises `ExternalError` when the image could not be deleted.
        """
        return await self._client_for(image, **access).delete(image)

    def _client_for(
        self,
        image: ImageReference,
        *,
        endpoint: str = "",
        credentials: RegistryCredentials | None = None,
        insecure: bool = False,
    ) -> ImageRegistry:
        # Credentials are sent to the registry that they are for, never to another one that an image names.
        matches = split_endpoint(endpoint)[0] == image.registry
        return self._client(
            endpoint if matches else image.registry,
            credentials if matches else None,
            insecure=insecure and matches,
        )

    def _client(
        self, endpoint: str, credentials: RegistryCredentials | None, *, insecure: bool
    ) -> ImageRegistry:
        login = msgspec.json.encode(credentials) if credentials is not None else b""
        key = f"{endpoint} {insecure} {hashlib.sha256(login).hexdigest()}"
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= _MAX_CLIENTS:
                self._clients.clear()
            client = ImageRegistry(
                endpoint, self._http, credentials=credentials, insecure=insecure, clock=self._clock
            )
            self._clients[key] = client
        return client


class DigestCache:
    """Access to images that keeps the digests returned so far."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._digests: dict[tuple[str, str], str] = {}

    def cached(self, image: ImageReference, scope: str) -> str | None:
        """Return the digest that an earlier request of this scope returned, or None."""
        return self._digests.get((scope, str(image)))

    async def digest(self, image: ImageReference, scope: str, **access: Unpack[RegistryAccess]) -> str | None:
        """Request the digest of an image and keep it. Return None if the registry does not have the image.

        `scope` names the access: another access may not see the image, so it gets nothing that this one has kept.
        Raises `ExternalError` when the registry gave no clear answer.
        """
        digest = await self._images.digest(image, **access)
        if digest is not None:
            if len(self._digests) >= _MAX_DIGESTS:
                self._digests.clear()
            self._digests[scope, str(image)] = digest
        return digest

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        """Delete an image by its digest. Return False if the registry does not have it.

        Raises `ExternalError` when the image could not be deleted.
        """
        # Dropped first: a concurrent request goes to the registry, whatever becomes of the deletion.
        self._digests = {key: digest for key, digest in self._digests.items() if digest != image.digest}
        return await self._images.delete(image, **access)
