"""Names in an environment's namespace that are reserved for Kubernetes and the operator."""

from __future__ import annotations

from kapsa.environments.hosts.routes import INGRESS
from kapsa.environments.namespace_objects.apply_set import PARENT
from kapsa.environments.namespace_objects.copies import CONFIG_MAP, SECRET

__all__ = ["KEPT_BY_OPERATOR", "RESERVED", "ROUTE", "TLS_SECRET"]

ROUTE = "kapsa"
"""The name of the Ingress or HTTPRoute that the operator writes."""
TLS_SECRET = "kapsa-tls"  # noqa: S105 - a name

RESERVED = frozenset(
    {
        ("v1/ServiceAccount", "default"),
        (CONFIG_MAP, "kube-root-ca.crt"),
        (CONFIG_MAP, PARENT),
        (INGRESS, ROUTE),
        (SECRET, TLS_SECRET),
    }
)
"""Each as its kind and its name."""
KEPT_BY_OPERATOR = "the operator itself keeps an object of this name in the namespace"
"""The reason given when such a name is refused."""
