"""What becomes of the images of an environment that is deleted: its Registry's `imageRetention` says so.

They stay unless it says `delete`. Then those go that no other environment runs or has had built for it: whoever is deleted last
takes an image along. A registry that deletes nothing, or is away, is told of and never waited for.
"""

from __future__ import annotations

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.oci.image_reference import ImageReference, split_endpoint
from kapsa.adapters.oci.registries import Images
from kapsa.environments.images.registry_access import access_to
from kapsa.environments.resources import Environment, Registry
from kapsa.runtime import Context

__all__ = ["ImageRetention", "remember_image"]

_REMEMBERED = 50
"""How many images of an environment are known; older ones stay in the registry."""


def remember_image(ctx: Context[Environment], image: str, registry: Registry | None) -> None:
    """Have the status tell an image that is to go with its environment."""
    if registry is not None and registry.spec.image_retention == "delete":
        others = [each for each in ctx.status.built_images if each != image]
        ctx.status.built_images = [*others, image][-_REMEMBERED:]


class ImageRetention:
    """Deletes the images of deleted environments, where their Registry says so."""

    def __init__(self, images: Images) -> None:
        self._images = images

    async def run(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Delete what may go, and tell what could not be."""
        remembered = environment.status.built_images
        if not remembered:
            return
        kept = _images_of_others(environment, ctx)
        going = [ImageReference.parse(each) for each in remembered if each not in kept]
        for registry in ctx.list(Registry, namespace=""):
            home = split_endpoint(registry.spec.endpoint)[0]
            its = [each for each in going if each.registry == home]
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
            # The next one would meet the same, and the environment does not wait for a registry.
            left = images[deleted:]
            first, more = left[0].pinned, f" and {len(left) - 1} more" if len(left) > 1 else ""
            note = f"{first}{more} stays in Registry {registry.name}: {error}"
            ctx.event("Warning", "ImagesNotDeleted", note, action="Delete")
        if deleted:
            words = f"{deleted} {'image' if deleted == 1 else 'images'} deleted from Registry {registry.name}"
            ctx.event("Normal", "ImagesDeleted", words, action="Delete")


def _images_of_others(environment: Environment, ctx: Context[Environment]) -> set[str]:
    """What any other environment runs or remembers, of any project: two may share a repository of images.

    One that goes as well does not count, or two that go together would each leave their image to the other.
    """
    return {
        image
        for each in ctx.list(Environment, namespace="")
        if each.metadata.uid != environment.metadata.uid and not each.metadata.deleting
        for image in (each.status.image, *each.status.built_images)
        if image is not None
    }
