"""Addresses of repositories, names of commits and branches: checked before git sees them.

All of them come from tenants. git reads a leading dash as an option, `ext::` as a command to run, `file://`
as a path on this machine, and a name with `..` as a range. Such values are rejected here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote, urlsplit

import msgspec

from kapsa.adapters.errors import Refused

__all__ = ["SAFE_PROTOCOLS", "RepositoryAddress", "check_branch", "check_commit", "is_commit"]

SAFE_PROTOCOLS = ("https", "ssh")
"""The protocols that are allowed by default."""
_PROTOCOLS = ("https", "ssh", "http", "file")
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
    """The address of a repository, in a form that is safe to pass to git."""

    protocol: str
    host: str
    """The host in lower case; empty for a path on this machine."""
    port: int | None
    user: str
    """The user of an ssh address. A password is never part of an address."""
    path: str

    @classmethod
    def parse(cls, text: str, *, protocols: Collection[str] = SAFE_PROTOCOLS) -> RepositoryAddress:
        """Parse `https://host/path`, `ssh://user@host/path` or `user@host:path`.

        Raises `Refused` when the address is not acceptable. The message never repeats a password.
        """
        if not text or len(text) > _LONGEST_ADDRESS or not text.isprintable() or re.search(r"\s", text):
            raise _refused("must be a URL without spaces or control characters")
        if text.startswith("-"):
            raise _refused(f"{text[:40]!r} starts with a dash, which git would read as an option")
        address = _scp_like(text) or _url(text)
        if address.protocol not in protocols:
            allowed = ", ".join(sorted(protocols))
            raise _refused(f"protocol {address.protocol!r} is not allowed; use one of: {allowed}")
        return address

    @property
    def url(self) -> str:
        """The address as it is passed to git."""
        if self.protocol == "file":
            return f"file://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{self.user and f'{self.user}@'}{host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def effective_port(self) -> int:
        """The port to connect to: the given one, or the protocol's default."""
        return self.port or {"https": 443, "http": 80, "ssh": 22}.get(self.protocol, 0)

    def __str__(self) -> str:
        return self.url


def is_commit(text: str) -> bool:
    """Return whether this is a full commit hash: 40 or 64 hexadecimal digits in lower case."""
    return _COMMIT.fullmatch(text) is not None


def check_commit(text: str) -> str:
    """Return the text if it is a full commit hash.

    Raises `Refused` for anything else, such as a branch or an option.
    """
    if not is_commit(text):
        raise Refused(
            f"{text[:80]!r} is not a commit: use the full hash of 40 (or 64) hexadecimal digits in lower case"
        )
    return text


def check_branch(name: str) -> str:
    """Return the name if git allows it for a branch.

    Raises `Refused` when git would reject it, or read it as an option, a range or a pattern.
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
        raise Refused(f"{name[:80]!r} is not a valid branch name")
    return name


def _refused(why: str) -> Refused:
    return Refused(
        f"repository address: {why}",
        hint="Use an address such as https://git.example.com/team/app.git",
    )


def _scp_like(text: str) -> RepositoryAddress | None:
    if "://" in text:
        return None
    match = _SCP_LIKE.fullmatch(text)
    if match is None:
        return None
    path = match["path"]
    return RepositoryAddress(
        "ssh", match["host"].lower(), None, match["user"], _path(f"/{path.removeprefix('/')}")
    )


def _url(text: str) -> RepositoryAddress:
    # `ext::sh -c ...` and `fd::17` start remote helpers of git.
    if re.match(r"[A-Za-z0-9+.-]*::", text):
        raise _refused(f"{text.partition('::')[0][:20]!r} is a remote helper, not a protocol")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused("must be a URL") from None
    if parts.scheme not in _PROTOCOLS:
        raise _refused(f"protocol {parts.scheme[:20]!r} is not allowed")
    if parts.query or parts.fragment:
        raise _refused("must not have a query or a fragment")
    if parts.scheme == "file":
        if host or parts.username is not None:
            raise _refused("a file:// URL must not have a host")
        return RepositoryAddress("file", "", None, "", _path(parts.path))
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise Refused(
            "repository address: must not contain credentials, which would show up in logs and status",
            hint="Put them into a Secret instead",
        )
    if not _HOST.fullmatch(host) or port == 0:
        raise _refused(f"{host[:80]!r} is not a valid host name")
    user = parts.username or ""
    if user and not _USER.fullmatch(user):
        raise _refused("the user name is not allowed")
    return RepositoryAddress(parts.scheme, host.lower(), port, user, _path(parts.path))


def _path(path: str) -> str:
    plain = unquote(path)
    parts = plain.split("/")
    if not plain.strip("/") or not plain.isprintable() or "\\" in plain:
        raise _refused("the path is missing or contains control characters")
    if ".." in parts or any(part.startswith("-") for part in parts):
        raise _refused("the path must not contain '..' or a part that starts with a dash")
    return path
