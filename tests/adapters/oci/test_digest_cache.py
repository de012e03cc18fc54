"""The cache of digests: what one access has seen is not shown to another."""

from __future__ import annotations

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import DigestCache
from tests.environments.fakes import FakeImages


async def test_a_cached_digest_is_returned_only_to_the_access_that_requested_it() -> None:
    images = FakeImages()
    digest = images.push("registry.example.com/bank/app:1")
    image = ImageReference.parse("registry.example.com/bank/app:1")
    cache = DigestCache(images)
    assert await cache.digest(image, "bank") == digest
    assert cache.cached(image, "bank") == digest
    assert cache.cached(image, "") is None
