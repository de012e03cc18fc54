"""The identity of a build: the tag of its image, from the commit and the way it is built."""

from __future__ import annotations

import hashlib

import msgspec

from kapsa.adapters.git.address import check_commit
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.names import bounded
from kapsa.environments.resources import Build, Project

__all__ = ["build_digest", "build_name", "image_tag"]

_DIGITS = 10
_NAME_DIGITS = 20
"""Digits of a build's name: nobody can search for a project or a repository that leads to the name of another."""
_DEFAULT = Build()


def build_digest(build: Build | None) -> str:
    """Return a short digest of the build settings; empty for the default settings or no build.

    The resources of a build are not part of it: they do not change the image.
    """
    if build is None or build.strategy == "none":
        return ""
    parts = [_content(build), _content(_DEFAULT)]
    if parts[0] == parts[1]:
        return ""
    return hashlib.sha256(parts[0]).hexdigest()[:_DIGITS]


def image_tag(project: Project, commit: str) -> str:
    """Return the tag of a commit's image: the commit, and the digest of its build settings.

    An image that a pipeline pushed with the commit as its tag is used. One that was built with other settings
    is not.
    """
    digest = build_digest(project.spec.build)
    return f"{check_commit(commit)}-{digest}" if digest else check_commit(commit)


def build_name(project: Project, commit: str, image: ImageReference) -> str:
    """Return the name of an image's build, which all environments of the project share."""
    content = f"{project.metadata} {image}"
    digits = hashlib.sha256(content.encode()).hexdigest()[:_NAME_DIGITS]
    return f"{bounded(project.name.replace('.', '-'), 28)}-{digits}-{commit[:12]}"


def _content(build: Build) -> bytes:
    variables = sorted((each.name, each.value) for each in build.env)
    return msgspec.json.encode(
        [build.strategy, build.dockerfile, build.context, sorted(build.args.items()), variables],
        order="deterministic",
    )
