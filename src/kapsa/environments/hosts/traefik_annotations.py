"""The annotations of Traefik that a tenant may set.

Traefik writes several of them into the rule of a router as they are, or reads objects of other namespaces by them, so
only those that concern the tenant's own requests are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["is_of_traefik", "traefik_refusal"]

_PREFIX = "traefik.ingress.kubernetes.io/"
_TRUTH = re.compile(r"true|false")
_NAMES = re.compile(r"[A-Za-z0-9_-]+(, ?[A-Za-z0-9_-]+)*")
_NUMBER = re.compile(r"[0-9]{1,9}")
_ALLOWED: Mapping[str, re.Pattern[str]] = {
    "router.entrypoints": _NAMES,
    "router.pathmatcher": re.compile(r"Path|PathPrefix"),
    "router.priority": _NUMBER,
    "router.tls": _TRUTH,
    "service.nativelb": _TRUTH,
    "service.passhostheader": _TRUTH,
    "service.serversscheme": re.compile(r"http|https|h2c"),
    "service.sticky.cookie": _TRUTH,
    "service.sticky.cookie.httponly": _TRUTH,
    "service.sticky.cookie.maxage": _NUMBER,
    "service.sticky.cookie.name": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "service.sticky.cookie.samesite": re.compile(r"none|lax|strict"),
    "service.sticky.cookie.secure": _TRUTH,
}


def is_of_traefik(key: str) -> bool:
    """Return whether an annotation is one of Traefik's."""
    return "traefik" in key.rpartition("/")[0].lower()


def traefik_refusal(key: str, value: str) -> str:
    """Return the reason to refuse an annotation of Traefik; empty if it is allowed."""
    allowed = _ALLOWED.get(key.removeprefix(_PREFIX)) if key.startswith(_PREFIX) else None
    if allowed is None:
        names = ", ".join(_ALLOWED)
        return f"annotation {key} could configure Traefik for others; after {_PREFIX} only these are allowed: {names}"
    if not allowed.fullmatch(value):
        return f"annotation {key} is {value[:80]!r}, but must match {allowed.pattern}"
    return ""
