"""Versions of charts: semantic versions, with a leading `v` if the chart has one, and their order."""

import re

__all__ = ["is_prerelease", "is_version", "same_version", "version_order"]

_NUMBER = r"(?:0|[1-9]\d*)"
_IDENTIFIER = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"v?(?P<core>{_NUMBER}\.{_NUMBER}\.{_NUMBER})"
    rf"(?:-(?P<pre>{_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_LONGEST = 128


def is_version(text: str) -> bool:
    """Return whether this is a semantic version. A leading `v` is accepted."""
    return len(text) <= _LONGEST and _VERSION.fullmatch(text) is not None


def is_prerelease(version: str) -> bool:
    """Return whether a version is a prerelease, such as 1.0.0-rc.1."""
    match = _VERSION.fullmatch(version)
    return match is not None and match["pre"] is not None


def same_version(left: str, right: str) -> bool:
    """Return whether two texts name the same version: `v1.2.3` and `1.2.3` do."""
    return left.removeprefix("v") == right.removeprefix("v")


def version_order(version: str) -> str:
    """Return a key that sorts as versions do, compared byte by byte: in Python, and in SQL under the C collation.

    Raises ValueError if this is not a version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is not a semantic version")
    core = ".".join(_padded(number) for number in match["core"].split("."))
    if match["pre"] is None:
        return f"{core}~ {version}"  # above every prerelease: `~` is the last of the printable characters
    parts = (f"0{_padded(part)}" if part.isdigit() else f"1{part}" for part in match["pre"].split("."))
    # `!` is before every character of an identifier, and the blank before all of them. The text at the end keeps
    # versions apart that differ in their build only.
    return f"{core}-{'!'.join(parts)} {version}"


def _padded(number: str) -> str:
    """Return a number with its length first, so that texts compare as the numbers do."""
    return f"{len(number):03}{number}"
