"""Names in an environment's namespace that Kubernetes or the operator itself needs: nothing of a tenant's may be called so."""

from __future__ import annotations

from kapsa.environments.routes import INGRESS
from kapsa.environments.steps.apply_set import PARENT
from kapsa.environments.steps.copies import CONFIG_MAP, SECRET
from kapsa.environments.steps.route import ROUTE, TLS_SECRET, WILDCARD_SECRET

__all__ = ["KEPT_BY_OPERATOR", "TAKEN"]

TAKEN = frozenset(
    {
        ("v1/ServiceAccount", "default"),
        (CONFIG_MAP, "kube-root-ca.crt"),
        (CONFIG_MAP, PARENT),
        (INGRESS, ROUTE),
        (SECRET, TLS_SECRET),
        (SECRET, WILDCARD_SECRET),
    }
)
"""Each as its kind and its name."""
KEPT_BY_OPERATOR = "an object of this name is kept there by the operator itself"
"""Why such a name is refused."""
