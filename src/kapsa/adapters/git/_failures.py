"""Errors from git's messages.

git has one exit code for all failures, so its messages in the C locale decide.
"""

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

__all__ = ["failure", "not_a_repository", "not_written"]

_MESSAGE_LIMIT = 500
_NOT_WRITTEN = "CacheNotWritable"
_DISK_HINT = "Ask an administrator to check the cache directory and its disk"
_NOISE = ("hint:", "warning:", "error: unable to read askpass response")

_REDIRECTED = re.compile(r"returned error: 30[1278]|unable to update url base from redirection", re.I)
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded|read-only file system", re.I)
_NOT_ALLOWED = re.compile(r"transport '[^']*' not allowed|fsck error|fsck failed", re.I)
_BROKEN_PACK = re.compile(r"index-pack failed|invalid index-pack", re.I)
_DISCONNECTED = re.compile(r"early eof|unexpected disconnect|hung up|rpc failed", re.I)
_UNKNOWN_HOST_KEY = re.compile(
    r"host key verification failed|no .* host key is known|identification has changed", re.I
)
_UNAUTHORIZED = re.compile(
    r"authentication failed|could not read (username|password)|terminal prompts disabled|returned error: 40[13]\b"
    r"|permission denied \(|permission to .* denied|access denied|invalid credentials|http basic: access denied",
    re.I,
)
_COMMIT_MISSING = re.compile(
    r"not our ref|couldn't find remote ref|unadvertised object|no such remote ref", re.I
)
_REPOSITORY_MISSING = re.compile(
    r"repository '[^']*' not found|repository not found|returned error: 4(?:04|10)\b|does not appear to be a git repository"
    r"|could not be found|does not exist|no such project|not valid: is this a git repository",
    re.I,
)
_RATE_LIMIT = re.compile(r"returned error: 429|too many requests|rate limit", re.I)
_NO_RESPONSE = re.compile(
    r"could not resolve|failed to connect|couldn't connect|connection (refused|reset|timed out|closed)|timed out|timeout"
    r"|returned error: 5\d\d|early eof|remote end hung up|unexpected disconnect|network is unreachable|no route to host"
    r"|empty reply|operation too slow|expected flush|curl \d+|ssl|tls|gnutls|certificate|name or service not known"
    r"|temporary failure in name resolution|bad line length|rpc failed|protocol error",
    re.I,
)  # fmt: skip
_UNTRUSTED_CERTIFICATE = re.compile(r"certificate|unable to get local issuer|self.signed", re.I)


def failure(
    stderr: str, address: RepositoryAddress, secrets: Iterable[str], *, with_credentials: bool
) -> ExternalError:
    """Return the error for a message of git, without secrets."""
    message = _excerpt(stderr, secrets)
    text = f"{address.url}: {message or 'git failed without a message'}"
    if _REDIRECTED.search(message):
        return Refused(
            f"{text}: redirects are not followed",
            hint="The repository may have moved: use its new URL",
            reason="Redirected",
        )
    if _DISK_FULL.search(message):
        return ExternalFailure(text, hint=_DISK_HINT, reason=_NOT_WRITTEN)
    if _NOT_ALLOWED.search(message):
        return Refused(text)
    if _BROKEN_PACK.search(message):  # also the result of a connection that broke off
        return Unreachable(text) if _DISCONNECTED.search(message) else Refused(text)
    if _UNKNOWN_HOST_KEY.search(message):
        return AuthFailed(
            text,
            hint="The server's key does not match known_hosts in the Secret: find out why before you change it",
            reason="UnknownServer",
        )
    if _UNAUTHORIZED.search(message):
        if with_credentials:
            return AuthFailed(text, hint="Check the credentials in the Secret for this repository")
        return AuthFailed(text, hint="Add a Secret with credentials for this repository")
    if _COMMIT_MISSING.search(message):
        return ExternalNotFound(text, reason="CommitNotFound")
    if _REPOSITORY_MISSING.search(message):
        return ExternalNotFound(
            text,
            hint="Check the URL and the credentials: without access, a private repository looks like a missing one",
            reason="RepositoryNotFound",
        )
    if _RATE_LIMIT.search(message):
        return Unreachable(
            text,
            hint="Poll less often, use webhooks, or add credentials: servers allow more requests with a login",
            reason=RATE_LIMITED,
        )
    if _NO_RESPONSE.search(message):
        hint = (
            "Add the certificate of the authority to the Secret, as ca.crt"
            if _UNTRUSTED_CERTIFICATE.search(message)
            else ""
        )
        return Unreachable(text, hint=hint)
    return ExternalFailure(text)


def not_a_repository(address: RepositoryAddress) -> ExternalError:
    """Return the error for a server that answers with a web page."""
    return ExternalNotFound(
        f"{address.url}: the server answered, but not as a git server does",
        hint="Check the URL and the credentials: a login page or a proxy may have answered instead",
        reason="RepositoryNotFound",
    )


def not_written(what: str, error: OSError) -> ExternalError:
    """Return the error for a local disk that is full or not writable."""
    return ExternalFailure(
        f"{what} cannot be written: {error.strerror}", hint=_DISK_HINT, reason=_NOT_WRITTEN
    )


def _excerpt(stderr: str, secrets: Iterable[str]) -> str:
    lines = [line.strip() for line in redact(printable(stderr), secrets).splitlines() if line.strip()]
    relevant = [line for line in lines if not line.startswith(_NOISE)]
    return "; ".join(relevant)[-_MESSAGE_LIMIT:]
