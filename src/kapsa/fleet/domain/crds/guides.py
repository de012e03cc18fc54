"""Migration guides: what a person has to do on the way from one version of an operator to another."""

from collections.abc import Iterable

import msgspec

from kapsa.fleet.domain.versions import version_order

__all__ = ["MigrationGuide", "guides_between"]


class MigrationGuide(msgspec.Struct, frozen=True, rename="camel"):
    """The guide to a version: what to do before or after upgrading to it."""

    version: str
    text: str


def guides_between(guides: Iterable[MigrationGuide], present: str, target: str) -> tuple[MigrationGuide, ...]:
    """Return the guides of the versions after `present`, up to `target`, in the order of the way.

    On the way back they are the guides of the versions that are left, the newest first. Without a present
    version, only the guide of the target counts.
    """
    end = version_order(target)
    start = version_order(present) if present else end
    low, high = min(start, end), max(start, end)
    on_way = [guide for guide in guides if guide.text and low < version_order(guide.version) <= high]
    if not present:
        on_way = [guide for guide in guides if guide.text and guide.version == target]
    return tuple(sorted(on_way, key=lambda guide: version_order(guide.version), reverse=start > end))
