"""What git is told: addresses of repositories, commits and references, judged before git sees them.

Everything here comes from tenants. git reads a leading dash as an option, `ext::` as a command to run, `file://` as a path of
this machine, and a name with `..` as a range; none of it gets that far.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote, urlsplit

import msgspec

from kapsa.adapters.errors import Refused

__all__ = ["SAFE_PROTOCOLS", "RepositoryAddress", "check_branch", "check_commit", "is_commit"]

SAFE_PROTOCOLS = ("https", "ssh")
"""What is allowed unless the settings say otherwise."""
_KNOWN_PROTOCOLS = ("https", "ssh", "http", "file")
_LONGEST_ADDRESS = 2048
_LONGEST_REFERENCE = 255

_SCP_LIKE = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:].*)"
)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FORBIDDEN_IN_REFERENCE = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


class RepositoryAddress(msgspec.Struct, frozen=True):
    """Where a repository is: an address that git can be given."""

    protocol: str
    host: str
    """Lower case; empty for a path of this machine."""
    port: int | None
    user: str
    """Only ssh has one; a password is never part of an address."""
    path: str

    @classmethod
    def parse(cls, text: str, *, protocols: Collection[str] = SAFE_PROTOCOLS) -> RepositoryAddress:
        """Read `https://host/path`, `ssh://user@host/path` or `user@host:path`.

        :raises Refused: naming what is wrong; a password in the address is not repeated.
        """
        if not text or len(text) > _LONGEST_ADDRESS or not text.isprintable() or re.search(r"\s", text):
            raise _refused("it must be a URL without spaces or control characters")
        if text.startswith("-"):
            raise _refused(f"{text[:40]!r} begins with a dash, which git would read as an option")
        address = _scp_like(text) or _url(text)
        if address.protocol not in protocols:
            allowed = ", ".join(sorted(protocols))
            raise _refused(f"the protocol {address.protocol!r} is not allowed; allowed is: {allowed}")
        return address

    @property
    def url(self) -> str:
        """The address as git gets it."""
        if self.protocol == "file":
            return f"file://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{self.user and f'{self.user}@'}{host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def connects_to(self) -> int:
        """The port that a connection goes to."""
        return self.port or {"https": 443, "http": 80, "ssh": 22}.get(self.protocol, 0)

    def __str__(self) -> str:
        return self.url


def is_commit(text: str) -> bool:
    """Whether this is a whole object name: 40 or 64 lower-case hexadecimal digits."""
    return _COMMIT.fullmatch(text) is not None


def check_commit(text: str) -> str:
    """The same text, if it is the whole name of a commit.

    :raises Refused: it is anything else, such as a branch or an option.
    """
    if not is_commit(text):
        raise Refused(
            f"{text[:80]!r} is not a commit: 40 (or 64) hexadecimal digits in lower case are needed"
        )
    return text


def check_branch(name: str) -> str:
    """The same name, if git allows it for a branch.

    :raises Refused: it could be read as an option, a range or a pattern, or git does not allow it.
    """
    parts = name.split("/")
    if (
        not name
        or len(name) > _LONGEST_REFERENCE
        or name.startswith("-")
        or name.endswith(".")
        or name == "@"
        or _FORBIDDEN_IN_REFERENCE.search(name)
        or any(not part or part.startswith((".", "-")) or part.endswith(".lock") for part in parts)
    ):
        raise Refused(f"{name[:80]!r} is not the name of a branch")
    return name


def _refused(why: str) -> Refused:
    return Refused(
        f"repository address: {why}",
        hint="Set spec.source.repositoryUrl to an address such as https://git.example.com/team/app.git",
    )


def _scp_like(text: str) -> RepositoryAddress | None:
    if "://" in text:
        return None
    found = _SCP_LIKE.fullmatch(text)
    if found is None:
        return None
    path = found["path"]
    return RepositoryAddress(
        "ssh", found["host"].lower(), None, found["user"], _path(f"/{path.removeprefix('/')}")
    )


def _url(text: str) -> RepositoryAddress:
    # `ext::sh -c ...` and `fd::17` are commands of git's remote helpers, wherever the colons are.
    if re.match(r"[A-Za-z0-9+.-]*::", text):
        raise _refused(f"{text.partition('::')[0][:20]!r} is a remote helper, not a protocol")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused("it is not a URL") from None
    if parts.scheme not in _KNOWN_PROTOCOLS:
        raise _refused(f"the protocol {parts.scheme[:20]!r} is not allowed")
    if parts.query or parts.fragment:
        raise _refused("a query or a fragment is not allowed")
    if parts.scheme == "file":
        if host or parts.username is not None:
            raise _refused("file:// takes a path and no host")
        return RepositoryAddress("file", "", None, "", _path(parts.path))
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise Refused(
            "repository address: it holds credentials, which would end up in logs and status",
            hint="Put them into a Secret and name it in spec.source.credentials.secretRef",
        )
    if not _HOST.fullmatch(host) or port == 0:
        raise _refused(f"{host[:80]!r} is not the name of a host")
    user = parts.username or ""
    if user and not _USER.fullmatch(user):
        raise _refused("the user's name is not allowed")
    return RepositoryAddress(parts.scheme, host.lower(), port, user, _path(parts.path))


def _path(path: str) -> str:
    plain = unquote(path)
    parts = plain.split("/")
    if not plain.strip("/") or not plain.isprintable() or "\\" in plain:
        raise _refused("the path of the repository is missing or holds control characters")
    if ".." in parts or any(part.startswith("-") for part in parts):
        raise _refused("the path of the repository must have no '..' and no part that begins with a dash")
    return path
