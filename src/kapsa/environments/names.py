"""Names: of namespaces, labels, hosts and releases, each within the limit of what it names.

A name made by joining parts can collide with another's (`a` + `b-c` and `a-b` + `c`). So a name is never proof: whatever
is made carries its owner's UID, and whoever changes or deletes it looks at that.
"""

from __future__ import annotations

import hashlib
import re

from kapsa.adapters.helm.chart import RELEASE_LIMIT

__all__ = [
    "APPROVED_COMMIT",
    "BRANCH",
    "COMMON_NAME_LIMIT",
    "ENVIRONMENT",
    "FINALIZER",
    "HOST_LIMIT",
    "LABEL_LIMIT",
    "MANAGED_BY",
    "OPERATOR",
    "OWNER",
    "OWNER_UID",
    "PROJECT",
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
"""The operator's name: its field manager, and what `managed-by` says."""
FINALIZER = "catalyst.dev/finalizer"
"""Keeps an Environment until what was made for it is gone."""

TEAM = "catalyst.dev/team"
PROJECT = "catalyst.dev/project"
ENVIRONMENT = "catalyst.dev/environment"
BRANCH = "catalyst.dev/branch"
"""As a label the branch's slug, as an annotation its raw name: most branch names are no label values."""
OWNER_UID = "catalyst.dev/owner-uid"
"""A label with the UID of the resource that something was made for. What has another's, or none, is not ours."""
OWNER = "catalyst.dev/owner"
"""An annotation with the namespace and name of that resource: it leads from a change back to whom it concerns."""
MANAGED_BY = "app.kubernetes.io/managed-by"
APPROVED_COMMIT = "catalyst.dev/approved-commit"
"""An annotation with the one commit of a fork that somebody trusts with the project's secrets."""

LABEL_LIMIT = 63
HOST_LIMIT = 253
COMMON_NAME_LIMIT = 64
"""Of a certificate, which some authorities put the host into."""

_HASH_DIGITS = 5
_LEAST_ROOM = _HASH_DIGITS + 2
"""One character of a name, and what tells it from others."""


def sanitize(part: str) -> str:
    """One part of a name: lower case, with a dash for each run of what a name cannot hold. It may come out empty.

    >>> sanitize("PR/42")
    'pr-42'
    """
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]+", "-", part.lower())).strip("-")


def bounded(name: str, limit: int) -> str:
    """The name itself if it is short enough, else its beginning and five hex digits that tell it from others."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1].rstrip('-')}-{digest}"


def _joined(parts: tuple[str, ...], limit: int, what: str) -> str:
    kept = [clean for part in parts if (clean := sanitize(part))]
    if not kept:
        raise ValueError(f"{parts!r} leaves nothing to make a {what}'s name of: use letters and digits")
    return bounded("-".join(kept), limit)


def namespace_name(*parts: str) -> str:
    """The namespace of an environment (team, project, environment), or of a project's Environments (team, project).

    >>> namespace_name("My_Team", "Web App", "PR/42")
    'my-team-web-app-pr-42'
    """
    return _joined(parts, LABEL_LIMIT, "namespace")


def host_label(*parts: str) -> str:
    """One label of a host name, such as the first one of an environment's host."""
    return _joined(parts, LABEL_LIMIT, "host")


def release_name(*parts: str) -> str:
    """A Helm release."""
    return _joined(parts, RELEASE_LIMIT, "release")


def host_name(label: str, domain: str) -> str:
    """A host of one label under a domain: as short as a certificate's common name where the domain leaves room for that.

    :raises ValueError: the domain leaves no room for a host at all.
    """
    taken = len(domain) + 1
    if HOST_LIMIT - taken < _LEAST_ROOM:
        raise ValueError(f"{domain} is too long a domain: a host under it would pass {HOST_LIMIT} characters")
    limit = COMMON_NAME_LIMIT if COMMON_NAME_LIMIT - taken >= _LEAST_ROOM else HOST_LIMIT
    return f"{bounded(label, min(limit - taken, LABEL_LIMIT))}.{domain}"


def label_value(text: str) -> str:
    """A label's value that says much the same as any text, such as a branch's name.

    >>> label_value("feature/login")
    'feature-login'
    """
    kept = re.sub(r"[^A-Za-z0-9_.-]", "", text.replace("/", "-").replace(":", "-"))
    return kept.strip("-_.")[:LABEL_LIMIT].strip("-_.")
