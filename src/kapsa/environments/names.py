"""Names of namespaces, labels, hosts and releases, each within its length limit.

Names made by joining parts can collide (`a` + `b-c` and `a-b` + `c`). So a name never proves ownership: each
created object has a label with its owner's UID, which is checked before it is changed or deleted.
"""

from __future__ import annotations

import hashlib
import re

from kapsa.adapters.helm.renderer import RELEASE_LIMIT

__all__ = [
    "APPROVED_COMMIT",
    "BRANCH",
    "COMMON_NAME_LIMIT",
    "ENVIRONMENT",
    "FINALIZER",
    "HOST_LIMIT",
    "KEEP_UNTIL",
    "LABEL_LIMIT",
    "MANAGED_BY",
    "OPERATOR",
    "OWNER",
    "OWNER_UID",
    "PROJECT",
    "REDEPLOY_REQUESTED",
    "ROLE",
    "TEAM",
    "bounded",
    "host_label",
    "host_name",
    "label_value",
    "namespace_name",
    "release_name",
    "sanitize",
]

OPERATOR = "kapsa"
"""The name of the operator, its field manager and the value of `managed-by`."""
FINALIZER = "catalyst.dev/finalizer"
"""The finalizer that keeps an Environment until its objects are deleted."""

TEAM = "catalyst.dev/team"
PROJECT = "catalyst.dev/project"
ENVIRONMENT = "catalyst.dev/environment"
BRANCH = "catalyst.dev/branch"
"""A label with the slug of the branch, and an annotation with its raw name: few branch names are valid label
values."""
OWNER_UID = "catalyst.dev/owner-uid"
"""A label with the UID of the resource that an object was created for. An object without it, or with another
UID, is not ours."""
OWNER = "catalyst.dev/owner"
"""An annotation with the namespace and name of that resource, which maps a change back to it."""
MANAGED_BY = "app.kubernetes.io/managed-by"
APPROVED_COMMIT = "catalyst.dev/approved-commit"
"""An annotation with the only commit of a fork that may run."""
KEEP_UNTIL = "catalyst.dev/keep-until"
"""An annotation of an Environment with a time, such as 2030-01-31T12:00:00Z, before which it does not expire."""
REDEPLOY_REQUESTED = "catalyst.dev/redeploy-requested"
"""An annotation of an Environment. A new value replaces its pods and retries its failed build."""
ROLE = "catalyst.dev/role"
"""A label of the Environments that a Project created: preview or permanent. Others are left alone."""

LABEL_LIMIT = 63
HOST_LIMIT = 253
COMMON_NAME_LIMIT = 64
"""The limit for the common name of a certificate, which some issuers set to the host."""

_HASH_DIGITS = 5
_LEAST_ROOM = _HASH_DIGITS + 2
"""One character of a name and the digits that make it unique."""


def sanitize(part: str) -> str:
    """Return one part of a name: lower case, with a dash for each run of invalid characters. It may be empty.

    >>> sanitize("PR/42")
    'pr-42'
    """
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]+", "-", part.lower())).strip("-")


def bounded(name: str, limit: int) -> str:
    """Return the name if it is short enough, else its beginning and five hex digits that make it unique."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1].rstrip('-')}-{digest}"


def _joined(parts: tuple[str, ...], limit: int, what: str) -> str:
    kept = [clean for part in parts if (clean := sanitize(part))]
    if not kept:
        raise ValueError(
            f"{parts!r} contains no letter or digit for the name of a {what}: use letters and digits"
        )
    return bounded("-".join(kept), limit)


def namespace_name(*parts: str) -> str:
    """Return the name of the namespace of an environment (three parts) or a project (two parts).

    >>> namespace_name("My_Team", "Web App", "PR/42")
    'my-team-web-app-pr-42'
    """
    return _joined(parts, LABEL_LIMIT, "namespace")


def host_label(*parts: str) -> str:
    """Return one label of a host name, such as the first one of an environment's host."""
    return _joined(parts, LABEL_LIMIT, "host")


def release_name(*parts: str) -> str:
    """Return the name of a Helm release."""
    return _joined(parts, RELEASE_LIMIT, "release")


def host_name(label: str, domain: str) -> str:
    """Return a host of one label under a domain, as short as a common name if the domain allows.

    Raises ValueError if the domain leaves no room for a host.
    """
    used = len(domain) + 1
    if HOST_LIMIT - used < _LEAST_ROOM:
        raise ValueError(f"domain {domain} is too long: a host under it would exceed {HOST_LIMIT} characters")
    limit = COMMON_NAME_LIMIT if COMMON_NAME_LIMIT - used >= _LEAST_ROOM else HOST_LIMIT
    return f"{bounded(label, min(limit - used, LABEL_LIMIT))}.{domain}"


def label_value(text: str) -> str:
    """Return a valid label value close to the text, such as a branch's name.

    >>> label_value("feature/login")
    'feature-login'
    """
    kept = re.sub(r"[^A-Za-z0-9_.-]", "", text.replace("/", "-").replace(":", "-"))
    return kept.strip("-_.")[:LABEL_LIMIT].strip("-_.")
