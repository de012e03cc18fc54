"""Names of images, such as `registry.example.com/team/app:1.0@sha256:…`: parsed and formatted."""

from __future__ import annotations

import re

import msgspec

from kapsa.adapters.errors import Refused

__all__ = ["DOCKER_HUB", "ImageReference", "is_digest", "split_endpoint"]

DOCKER_HUB = "docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_LONGEST = 512

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class ImageReference(msgspec.Struct, frozen=True):
    """One image, or a repository of images if there is neither a tag nor a digest."""

    registry: str
    """The host of the registry, with a port if it has one; `docker.io` by default."""
    path: str
    """The repository inside the registry, such as `team/app`."""
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str, *, registry: str = DOCKER_HUB) -> ImageReference:
        """Parse a reference as container runtimes do. `registry` is the default for a name without a host.

        Raises `Refused` when it is not valid.
        """
        if not text or len(text) > _LONGEST or not text.isascii():
            raise _refused(text)
        rest, _, digest = text.partition("@")
        if "@" in text and not is_digest(digest):
            raise _refused(text)
        host, rest = _split_host(rest, registry)
        path, colon, tag = rest.partition(":")
        if host == DOCKER_HUB and "/" not in path:
            path = f"library/{path}"
        if not _PATH.fullmatch(path) or not _HOST.fullmatch(host) or (colon and not _TAG.fullmatch(tag)):
            raise _refused(text)
        return cls(host, path, tag, digest)

    @classmethod
    def within(cls, endpoint: str, repository: str) -> ImageReference:
        """Return a repository in the registry at an endpoint, such as `https://example.com/team` and `app`.

        Raises `Refused` when the repository names another registry, which would then get this one's
        credentials.
        """
        home, prefix = split_endpoint(endpoint)
        named = _split_host(repository, "")[0]
        if named not in ("", home):
            raise Refused(
                f"the image repository {repository!r} is not in the registry {home}",
                hint="Leave out the host, or use the registry that the repository is in",
            )
        inside = repository if named or not prefix else f"{prefix}/{repository}"
        return cls.parse(inside, registry=home)

    @property
    def repository(self) -> str:
        """The repository with its host, as in manifests."""
        return f"{self.registry}/{self.path}"

    def with_tag(self, tag: str) -> ImageReference:
        """Return the image with this tag in the same repository.

        Raises `Refused` when the tag is not valid.
        """
        if not _TAG.fullmatch(tag):
            raise Refused(f"{tag[:80]!r} is not a valid image tag")
        return ImageReference(self.registry, self.path, tag)

    def with_digest(self, digest: str) -> ImageReference:
        """Return the image with this digest in the same repository.

        Raises `Refused` when the digest is not valid.
        """
        if not is_digest(digest):
            raise Refused(f"{digest[:80]!r} is not a valid image digest")
        return ImageReference(self.registry, self.path, self.tag, digest)

    @property
    def pinned(self) -> str:
        """The image for a container: by its digest if there is one, which a later push cannot change."""
        return f"{self.repository}@{self.digest}" if self.digest else str(self)

    def __str__(self) -> str:
        return f"{self.repository}{self.tag and f':{self.tag}'}{self.digest and f'@{self.digest}'}"


def is_digest(text: str) -> bool:
    """Return whether this is a digest, such as `sha256:…`."""
    return _DIGEST.fullmatch(text) is not None


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Return the registry at an endpoint as image names contain it, and the path that they start with there.

    >>> split_endpoint("https://index.docker.io/v1/")
    ('docker.io', '')
    >>> split_endpoint("Registry.example.com:5000/team")
    ('registry.example.com:5000', 'team')
    """
    host, _, path = (endpoint.partition("://")[2] or endpoint).strip("/").partition("/")
    host = host.lower()
    # docker appends the version of the API to the host. It is not part of a name.
    return DOCKER_HUB if host in _HUB_NAMES else host, "" if path in ("v1", "v2") else path


def _split_host(text: str, default: str) -> tuple[str, str]:
    first, slash, rest = text.partition("/")
    # The rule of container runtimes: a first part with a dot or a colon, or localhost, is a host.
    if slash and ("." in first or ":" in first or first == "localhost"):
        host = first
    else:
        host, rest = default, text
    return (DOCKER_HUB if host in _HUB_NAMES else host), rest


def _refused(text: str) -> Refused:
    return Refused(
        f"{text[:120]!r} is not a valid image name",
        hint="Use a name such as registry.example.com/team/app, in lower case",
    )
