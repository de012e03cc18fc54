"""What git's complaints mean. git has one exit code for everything, so its words in the C locale decide."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kapsa.adapters.errors import (
    AuthFailed,
    ExternalError,
    ExternalFailure,
    ExternalNotFound,
    Refused,
    Unreachable,
)
from kapsa.adapters.git._host_limits import RATE_LIMITED
from kapsa.adapters.git.address import RepositoryAddress
from kapsa.adapters.redaction import printable, redact

__all__ = ["failure", "not_written"]

_SHOWN = 500
_NOT_WRITTEN = "CacheNotWritable"
_ROOM_HINT = "Have an administrator look at KAPSA_CACHE_DIRECTORY and the disk that it is on"
_NO_NEWS = ("hint:", "warning:", "error: unable to read askpass response")

_REDIRECTED = re.compile(r"returned error: 30[1278]|unable to update url base from redirection", re.I)
_NO_ROOM = re.compile(r"no space left on device|disk quota exceeded|read-only file system", re.I)
_NOT_ALLOWED = re.compile(r"transport '[^']*' not allowed|fsck error|fsck failed", re.I)
_BROKEN_PACK = re.compile(r"index-pack failed|invalid index-pack", re.I)
_CUT = re.compile(r"early eof|unexpected disconnect|hung up|rpc failed", re.I)
_UNKNOWN_SERVER = re.compile(
    r"host key verification failed|no .* host key is known|identification has changed", re.I
)
_NO_ENTRY = re.compile(
    r"authentication failed|could not read (username|password)|terminal prompts disabled|returned error: 40[13]\b"
    r"|permission denied \(|permission to .* denied|access denied|invalid credentials|http basic: access denied",
    re.I,
)
_NO_COMMIT = re.compile(r"not our ref|couldn't find remote ref|unadvertised object|no such remote ref", re.I)
_NO_REPOSITORY = re.compile(
    r"repository '[^']*' not found|repository not found|returned error: 4(?:04|10)\b|does not appear to be a git repository"
    r"|could not be found|does not exist|no such project|not valid: is this a git repository",
    re.I,
)
_TOO_MUCH = re.compile(r"returned error: 429|too many requests|rate limit", re.I)
_NO_ANSWER = re.compile(
    r"could not resolve|failed to connect|couldn't connect|connection (refused|reset|timed out|closed)|timed out|timeout"
    r"|returned error: 5\d\d|early eof|remote end hung up|unexpected disconnect|network is unreachable|no route to host"
    r"|empty reply|operation too slow|expected flush|curl \d+|ssl|tls|gnutls|certificate|name or service not known"
    r"|temporary failure in name resolution|bad line length|rpc failed|protocol error",
    re.I,
)  # fmt: skip
_UNTRUSTED = re.compile(r"certificate|unable to get local issuer|self.signed", re.I)


def failure(
    complaint: str, address: RepositoryAddress, secrets: Iterable[str], *, with_credentials: bool
) -> ExternalError:
    """The error for what git said, in words that hold no secret."""
    said = _excerpt(complaint, secrets)
    where = f"{address.url}: {said}" if said else f"{address.url}: git failed and said nothing"
    if _REDIRECTED.search(said):
        return Refused(
            f"{where}: redirects are not followed",
            hint="The repository may have moved: set spec.source.repositoryUrl to its present address",
            reason="Redirected",
        )
    if _NO_ROOM.search(said):
        return ExternalFailure(where, hint=_ROOM_HINT, reason=_NOT_WRITTEN)
    if _NOT_ALLOWED.search(said):
        return Refused(where)
    if _BROKEN_PACK.search(said):  # which is also what a connection leaves that was cut in the middle
        return Unreachable(where) if _CUT.search(said) else Refused(where)
    if _UNKNOWN_SERVER.search(said):
        return AuthFailed(
            where,
            hint="The server's key is not the one in known_hosts of the Secret: find out why before changing it",
            reason="UnknownServer",
        )
    if _NO_ENTRY.search(said):
        if with_credentials:
            return AuthFailed(where, hint="Check the Secret that spec.source.credentials names")
        return AuthFailed(where, hint="Name a Secret with credentials in spec.source.credentials.secretRef")
    if _NO_COMMIT.search(said):
        return ExternalNotFound(where, reason="CommitNotFound")
    if _NO_REPOSITORY.search(said):
        return ExternalNotFound(
            where,
            hint="Check the address; a private repository looks like a missing one to those who may not see it",
            reason="RepositoryNotFound",
        )
    if _TOO_MUCH.search(said):
        return Unreachable(
            where,
            hint="Poll less often, use webhooks, or name a Secret: servers allow more to those who log in",
            reason=RATE_LIMITED,
        )
    if _NO_ANSWER.search(said):
        hint = "Add the authority's certificate as ca.crt to the Secret" if _UNTRUSTED.search(said) else ""
        return Unreachable(where, hint=hint)
    return ExternalFailure(where)


def not_written(what: str, error: OSError) -> ExternalError:
    """The error for a disk of our own that takes nothing: full, read-only, or not ours to write to."""
    return ExternalFailure(f"{what} can't be written: {error.strerror}", hint=_ROOM_HINT, reason=_NOT_WRITTEN)


def _excerpt(complaint: str, secrets: Iterable[str]) -> str:
    lines = [line.strip() for line in redact(printable(complaint), secrets).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(_NO_NEWS)]
    return "; ".join(told)[-_SHOWN:]
