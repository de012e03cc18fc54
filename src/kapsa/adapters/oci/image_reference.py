"""Names of images: `registry.example.com/team/app:1.0@sha256:…`, taken apart and put together."""

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
    """One image, or all images of a repository if it has neither tag nor digest."""

    registry: str
    """Its host, with a port if need be; `docker.io` where none is written."""
    path: str
    """The repository inside the registry, such as `team/app`."""
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str, *, registry: str = DOCKER_HUB) -> ImageReference:
        """Read a reference as container runtimes do; `registry` is where a name without a host is.

        :raises Refused: it is none.
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
        """A repository of the registry at this endpoint, such as `https://registry.example.com/team` and `app`.

        :raises Refused: it names another registry, which would then be sent this one's credentials.
        """
        home, prefix = split_endpoint(endpoint)
        named = _split_host(repository, "")[0]
        if named not in ("", home):
            raise Refused(
                f"the image repository {repository!r} is not in the registry {home}",
                hint="Name a repository without a host, or the Registry that it is in",
            )
        inside = repository if named or not prefix else f"{prefix}/{repository}"
        return cls.parse(inside, registry=home)

    @property
    def repository(self) -> str:
        """The repository with its host, as manifests name it."""
        return f"{self.registry}/{self.path}"

    def with_tag(self, tag: str) -> ImageReference:
        """The image of this tag in the same repository.

        :raises Refused: it is no tag.
        """
        if not _TAG.fullmatch(tag):
            raise Refused(f"{tag[:80]!r} is not the tag of an image")
        return ImageReference(self.registry, self.path, tag)

    def with_digest(self, digest: str) -> ImageReference:
        """Exactly this image in the same repository.

        :raises Refused: it is no digest.
        """
        if not is_digest(digest):
            raise Refused(f"{digest[:80]!r} is not the digest of an image")
        return ImageReference(self.registry, self.path, self.tag, digest)

    @property
    def pinned(self) -> str:
        """What a container runs: by digest if there is one, which no later push can change."""
        return f"{self.repository}@{self.digest}" if self.digest else str(self)

    def __str__(self) -> str:
        return f"{self.repository}{self.tag and f':{self.tag}'}{self.digest and f'@{self.digest}'}"


def is_digest(text: str) -> bool:
    """Whether this is a digest such as `sha256:…`."""
    return _DIGEST.fullmatch(text) is not None


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """The registry at an endpoint as images name it, and the path that their names begin with there.

    >>> split_endpoint("https://index.docker.io/v1/")
    ('docker.io', '')
    >>> split_endpoint("Registry.example.com:5000/team")
    ('registry.example.com:5000', 'team')
    """
    host, _, path = (endpoint.partition("://")[2] or endpoint).strip("/").partition("/")
    host = host.lower()
    # What docker writes behind a host is the version of the API, and no part of a name.
    return DOCKER_HUB if host in _HUB_NAMES else host, "" if path in ("v1", "v2") else path


def _split_host(text: str, default: str) -> tuple[str, str]:
    first, slash, rest = text.partition("/")
    # What container runtimes go by: a first part with a dot or a colon, or localhost, is a host.
    if slash and ("." in first or ":" in first or first == "localhost"):
        host = first
    else:
        host, rest = default, text
    return (DOCKER_HUB if host in _HUB_NAMES else host), rest


def _refused(text: str) -> Refused:
    return Refused(
        f"{text[:120]!r} is not the name of an image",
        hint="Write it as registry.example.com/team/app, all in lower case",
    )
