"""The policy step: quota, limits, network policies, a service account without rights, and the access of people.

All of it is applied before anything runs, and restored when it is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.namespace_objects.children import RESOURCE_QUOTA, marked
from kapsa.environments.resources import DomainPool
from kapsa.environments.resources.environment import Phase
from kapsa.environments.settings import Settings
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.secrets import pull_secret_name
from kapsa.environments.steps.step import Done, Outcome, Waiting
from kapsa.environments.tenancy.api_server import api_server_ranges
from kapsa.environments.tenancy.network import SOLVER_PORT, cluster_dns, ingress_controller, internet
from kapsa.environments.tenancy.quota import environment_quota, hard_limits, is_enforced, quota_refusal
from kapsa.environments.tenancy.shared_services import shared_egress
from kapsa.environments.tenancy.team_access import ENVIRONMENT_ACCESS, grant_access
from kapsa.runtime import Quantity

__all__ = ["LIMIT_RANGE", "QUOTA", "PolicyStep"]

QUOTA = "kapsa-quota"
LIMIT_RANGE = "kapsa-limits"
SHARED_SERVICES = "kapsa-shared-services"
NETWORK_POLICY = "networking.k8s.io/v1/NetworkPolicy"
_DEFAULT_LIMITS = {
    "cpu": Quantity("500m"),
    "memory": Quantity("512Mi"),
    "ephemeral-storage": Quantity("2Gi"),
}
_DEFAULT_REQUESTS = {
    "cpu": Quantity("100m"),
    "memory": Quantity("128Mi"),
    "ephemeral-storage": Quantity("128Mi"),
}


class PolicyStep:
    """The step that limits the namespace. Needs the namespace.

    Writes ResourceQuota, LimitRange, NetworkPolicies, the default ServiceAccount and RoleBindings.
    """

    name: ClassVar[str] = "policy"
    condition: ClassVar[str] = "NamespaceReady"
    phase: ClassVar[Phase] = "Pending"

    async def run(self, visit: StepRun) -> Outcome:
        api_server = api_server_ranges(visit.ctx, visit.settings)
        for manifest in (*network_policies(visit.settings, api_server), service_account(visit)):
            await visit.ctx.apply(marked(visit, manifest, {MANAGED_BY: OPERATOR}), owner=False)
        await self._open_shared_services(visit, api_server)
        await grant_access(
            visit.ctx,
            visit.namespace,
            team=visit.project.namespace,
            access=ENVIRONMENT_ACCESS,
            enabled=visit.settings.team_access,
        )
        # Last: the team chooses the amounts, and those that are rejected must not keep the rest from being withdrawn.
        quota = environment_quota(visit.project, visit.settings)
        enforced = await self._limit(visit, hard_limits(quota))
        limits = marked(visit, limit_range(visit, quota), {MANAGED_BY: OPERATOR})
        await visit.ctx.apply(limits, owner=False)
        if (refusal := quota_refusal(visit.project, visit.settings)) is not None:
            raise refusal
        if not enforced and not _serves(visit):
            return Waiting(message="the quota is not enforced yet", reason="QuotaPending")
        return Done("quota, limits and network policies are in place", reason="PolicyInPlace")

    async def _open_shared_services(self, visit: StepRun, api_server: Sequence[str]) -> None:
        """Allow the traffic to the services that DomainPools open to the project, and to no others."""
        pools = visit.ctx.list(DomainPool, namespace="")
        rules = shared_egress(pools, visit.project, visit.team, api_server=api_server)
        if rules:
            policy = _policy(SHARED_SERVICES, policyTypes=["Egress"], egress=rules)
            await visit.ctx.apply(marked(visit, policy, {MANAGED_BY: OPERATOR}), owner=False)
        else:
            await visit.ctx.delete(NETWORK_POLICY, SHARED_SERVICES, namespace=visit.namespace)

    async def _limit(self, visit: StepRun, hard: Mapping[str, str]) -> bool:
        """Apply the quota. Returns whether the API server enforces it, or there is none."""
        if not hard:
            await visit.ctx.delete(RESOURCE_QUOTA, QUOTA, namespace=visit.namespace)
            return True
        manifest = _object("v1", "ResourceQuota", QUOTA, {"hard": hard})
        return is_enforced(
            await visit.ctx.apply(marked(visit, manifest, {MANAGED_BY: OPERATOR}), owner=False)
        )


def _serves(visit: StepRun) -> bool:
    """Return whether this commit is deployed and ready: the former quota holds until the new one is enforced."""
    status = visit.environment.status
    return status.is_true("Ready") and status.commit_sha == visit.commit


def limit_range(visit: StepRun, quota: Mapping[str, Quantity]) -> Manifest:
    """Return the default resources of containers, without which a quota would not admit them."""
    chosen = visit.project.spec.resources.limits
    limits = {}
    for resource, usual in _DEFAULT_LIMITS.items():
        field = resource.replace("-", "_")
        total = quota.get(field)
        # Half of the quota at most, unless the project sets more: an update runs the old and the new version.
        amount = getattr(chosen, field, None) or (min(usual, total / 2) if total is not None else usual)
        limits[resource] = min(amount, total) if total is not None else amount
    requests = {resource: min(_DEFAULT_REQUESTS[resource], limit) for resource, limit in limits.items()}
    container = {
        "type": "Container",
        "default": {resource: str(amount) for resource, amount in limits.items()},
        "defaultRequest": {resource: str(amount) for resource, amount in requests.items()},
    }
    return _object("v1", "LimitRange", LIMIT_RANGE, {"limits": [container]})


def network_policies(settings: Settings, api_server: Sequence[str]) -> list[Manifest]:
    """Return policies that deny all traffic, then allow the traffic that an environment needs."""
    everyone: dict[str, Any] = {}
    solver = {"matchLabels": {"acme.cert-manager.io/http01-solver": "true"}}
    dns_ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return [
        _policy("kapsa-default-deny", policyTypes=["Ingress", "Egress"]),
        _policy(
            "kapsa-same-namespace",
            policyTypes=["Ingress", "Egress"],
            ingress=[{"from": [{"podSelector": everyone}]}],
            egress=[{"to": [{"podSelector": everyone}]}],
        ),
        _policy("kapsa-dns", policyTypes=["Egress"], egress=[{"to": cluster_dns(), "ports": dns_ports}]),
        _policy(
            "kapsa-ingress-controller",
            policyTypes=["Ingress"],
            ingress=[{"from": [ingress_controller(settings)]}],
        ),
        _policy(
            "kapsa-acme-solver",
            podSelector=solver,
            policyTypes=["Ingress"],
            ingress=[{"ports": [{"protocol": "TCP", "port": SOLVER_PORT}]}],
        ),
        _policy("kapsa-internet", policyTypes=["Egress"], egress=[{"to": internet(settings, api_server)}]),
    ]


def service_account(visit: StepRun) -> Manifest:
    """Return the default account of pods: its token is not mounted, and it can pull the project's images."""
    pull_secret = pull_secret_name(visit)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default"},
        "automountServiceAccountToken": False,
        "imagePullSecrets": [{"name": pull_secret}] if pull_secret else [],
    }


def _policy(name: str, **spec: Any) -> Manifest:
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, {"podSelector": {}, **spec})


def _object(api_version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
