"""Migration guides: what a person has to do on the way from one version of an operator to another."""

import re
from collections.abc import Iterable

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = ["MOST_GUIDE_LENGTH", "MigrationGuide", "guides_between", "precedence"]

MOST_GUIDE_LENGTH = 64 * 1024
_VERSION = re.compile(
    r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


class MigrationGuide(msgspec.Struct, frozen=True, rename="camel"):
    """The guide to a version: what to do before or after upgrading to it."""

    version: str
    text: str

    def __post_init__(self) -> None:
        precedence(self.version)
        if len(self.text) > MOST_GUIDE_LENGTH:
            message = f"must have at most {MOST_GUIDE_LENGTH} characters, has {len(self.text)}"
            raise InvalidInput(f"the migration guide {message}", InvalidField("/migrationGuide", message))


def precedence(version: str) -> _Precedence:
    """Return a key that sorts semantic versions: `1.0.0-rc.2` < `1.0.0-rc.10` < `1.0.0`.

    Raises `InvalidInput` if the text is not a semantic version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        message = f"must be a semantic version such as 1.4.0, got {version[:40]!r}"
        raise InvalidInput(message, InvalidField("/version", message))
    parts = (match[4] or "").split(".") if match[4] else []
    pre = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
    return int(match[1]), int(match[2]), int(match[3]), not pre, pre


def guides_between(guides: Iterable[MigrationGuide], present: str, target: str) -> tuple[MigrationGuide, ...]:
    """Return the guides of the versions after `present`, up to `target`, in the order of the way.

    On the way back they are the guides of the versions that are left, the newest first.
    """
    low, high = sorted((precedence(present), precedence(target)))
    on_way = [guide for guide in guides if guide.text and low < precedence(guide.version) <= high]
    backward = precedence(present) > precedence(target)
    return tuple(sorted(on_way, key=lambda guide: precedence(guide.version), reverse=backward))
