"""What makes two builds the same: the image that comes out. Its tag says the commit, and how that is built."""

from __future__ import annotations

import hashlib

import msgspec

from kapsa.adapters.git.address import check_commit
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.names import bounded
from kapsa.environments.resources import Build, Project

__all__ = ["build_digest", "build_name", "image_tag"]

_DIGITS = 10
_USUAL = Build()


def build_digest(build: Build | None) -> str:
    """A few digits for how a commit is built; none where it is built as usual, or not here at all.

    What a build may use is not part of it: the same image comes out.
    """
    if build is None or build.strategy == "none":
        return ""
    parts = [_content(build), _content(_USUAL)]
    if parts[0] == parts[1]:
        return ""
    return hashlib.sha256(parts[0]).hexdigest()[:_DIGITS]


def image_tag(project: Project, commit: str) -> str:
    """The tag of a commit's image: the commit, and what is special about its build.

    So an image that somebody else pushed for the commit is found, and one that was built in another way is not taken for it.
    """
    digest = build_digest(project.spec.build)
    return f"{check_commit(commit)}-{digest}" if digest else check_commit(commit)


def build_name(project: Project, commit: str, image: ImageReference) -> str:
    """The name of the build of an image: the same for all environments of the project that want it."""
    content = f"{project.metadata} {image}"
    digits = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{bounded(project.name.replace('.', '-'), 30)}-{digits}-{commit[:12]}"


def _content(build: Build) -> bytes:
    variables = sorted((each.name, each.value) for each in build.env)
    return msgspec.json.encode(
        [build.strategy, build.dockerfile, build.context, sorted(build.args.items()), variables],
        order="deterministic",
    )
