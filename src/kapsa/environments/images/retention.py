"""The images of a deleted environment: kept or deleted by `imageRetention` of their Registry.

They are kept unless it is `delete`. Then an image is deleted with the last environment that runs it or had it
built. If a registry cannot be reached or deletes nothing, an event reports it; the deletion of the
environment does not wait.
"""

from __future__ import annotations

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.oci.image_reference import ImageReference, split_endpoint
from kapsa.adapters.oci.registries import DigestCache, Images
from kapsa.environments.images.registry_access import access_to
from kapsa.environments.resources import Environment, Registry
from kapsa.runtime import Context

__all__ = ["ImageRetention", "remember_image"]

_REMEMBERED = 50
"""The number of images remembered per environment; older ones stay in the registry."""


def remember_image(ctx: Context[Environment], image: str, registry: Registry | None) -> None:
    """Record in the status an image that will be deleted with its environment."""
    if registry is not None and registry.spec.image_retention == "delete":
        others = [each for each in ctx.status.built_images if each != image]
        ctx.status.built_images = [*others, image][-_REMEMBERED:]


class ImageRetention:
    """The deletion of images with their environment, if the Registry has `imageRetention: delete`."""

    def __init__(self, images: Images | DigestCache) -> None:
        self._images = images

    async def run(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Delete the images that no other environment uses, and record events."""
        remembered = environment.status.built_images
        if not remembered:
            return
        kept = _images_of_others(environment, ctx)
        unused = [ImageReference.parse(each) for each in remembered if each not in kept]
        for registry in ctx.list(Registry, namespace=""):
            home = split_endpoint(registry.spec.endpoint)[0]
            its = [each for each in unused if each.registry == home]
            if its and registry.spec.image_retention == "delete":
                await self._delete(its, registry, ctx)

    async def _delete(
        self, images: list[ImageReference], registry: Registry, ctx: Context[Environment]
    ) -> None:
        deleted = 0
        try:
            access = await access_to(registry, ctx.client)
            for image in images:
                await self._images.delete(image, **access)
                deleted += 1
        except ExternalError as error:
            # The next image would fail the same way, and the deletion does not wait for a registry.
            left = images[deleted:]
            first, more = left[0].pinned, f" and {len(left) - 1} more" if len(left) > 1 else ""
            note = f"could not delete {first}{more} from Registry {registry.name}: {error}"
            ctx.event("Warning", "ImagesNotDeleted", note, action="Delete")
        if deleted:
            words = f"deleted {deleted} {'image' if deleted == 1 else 'images'} from Registry {registry.name}"
            ctx.event("Normal", "ImagesDeleted", words, action="Delete")


def _images_of_others(environment: Environment, ctx: Context[Environment]) -> set[str]:
    """Return the images that other environments of any project run or remember.

    Environments that are being deleted do not count; otherwise two deleted together would leave the image to
    each other.
    """
    return {
        image
        for each in ctx.list(Environment, namespace="")
        if each.metadata.uid != environment.metadata.uid and not each.metadata.deleting
        for image in (each.status.image, *each.status.built_images)
        if image is not None
    }
