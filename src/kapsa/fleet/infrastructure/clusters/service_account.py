"""The account of this manager in a cluster: a ServiceAccount with its rights, and short-lived tokens for it.

Everything is named after the registration, so two managers of one cluster do not take each other's account away.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from kapsa.fleet.infrastructure.clusters.kubeconfig_credential import credential_id
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, IssuedAccess, ServiceAccountRef
from kapsa.runtime import Client, Forbidden, NotFound

__all__ = ["ACCOUNT_NAMESPACE", "bootstrap_account", "request_token", "withdraw_account"]

ACCOUNT_NAMESPACE = "kapsa-fleet"
_LABELS = {"app.kubernetes.io/managed-by": "kapsa-fleet"}
_RBAC = "rbac.authorization.k8s.io"
_BINDING = f"{_RBAC}/v1/ClusterRoleBinding"
_ROLE = f"{_RBAC}/v1/ClusterRole"
_EVERY_RIGHT = "cluster-admin"


async def bootstrap_account(client: Client, account: ServiceAccountRef) -> None:
    """Create the account, its rights and its namespace, or repair what was changed."""
    await client.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ACCOUNT_NAMESPACE, "labels": _LABELS}},
        force=True,
    )
    await _check_role(client, account.cluster_role)
    await _remove_other_binding(client, account)
    binding = await client.apply(_cluster_binding(account), force=True)
    uid = binding["metadata"]["uid"]
    for manifest in (*_dependents(account, uid), *_right_to_withdraw(account, uid)):
        await client.apply(manifest, force=True)


async def _check_role(client: Client, role: str) -> None:
    """Raise ClusterUnreachable if the role does not exist: Kubernetes accepts a binding to a role without checking."""
    try:
        await client.get(_ROLE, role)
    except Forbidden:
        return  # an account that may bind a role need not be able to read it
    except NotFound:
        raise ClusterUnreachable(
            f"{client.cluster} has no ClusterRole {role}: create it (`kapsa fleet role` prints one), "
            "or set KAPSA_FLEET_CLUSTER_ROLE to one that it has"
        ) from None


async def _remove_other_binding(client: Client, account: ServiceAccountRef) -> None:
    """Delete our binding if it is to another role, which cannot be changed. What it owns is applied again after it."""
    try:
        live = await client.get(_BINDING, account.name)
    except (Forbidden, NotFound):
        return
    if _is_ours(live) and live["roleRef"]["name"] != account.cluster_role:
        uid = live["metadata"]["uid"]
        await client.delete(_BINDING, account.name, uid=uid, propagation="Background", missing_ok=True)


async def request_token(
    client: Client, account: ServiceAccountRef, kubeconfig: bytes, lifetime: timedelta
) -> IssuedAccess:
    """Request a token for the account, and return the kubeconfig with it as the only credential."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": int(lifetime.total_seconds())},
    }
    response = await client.create_subresource(
        "v1/ServiceAccount", account.name, "token", body, namespace=ACCOUNT_NAMESPACE
    )
    token = (response.get("status") or {}).get("token")
    if not isinstance(token, str) or not token:
        raise ClusterUnreachable(f"{client.cluster} did not return a token for {account.name}")
    granted = (response.get("spec") or {}).get("expirationSeconds")
    issued = _with_token(kubeconfig, token)
    return IssuedAccess(issued, _lifetime(granted, lifetime), credential_id(issued))


def _lifetime(granted: Any, requested: timedelta) -> timedelta:
    """Return the lifetime that the server granted, which may be another one.

    Its clock is not ours, so the duration counts and not the timestamp, and at most twice what we asked for.
    """
    if not isinstance(granted, int) or granted <= 0:
        return requested
    return timedelta(seconds=min(granted, 2 * int(requested.total_seconds())))


async def withdraw_account(client: Client, account: ServiceAccountRef) -> None:
    """Delete the account and its rights. The namespace stays: other managers may have accounts there.

    The account itself is deleted by garbage collection: once its rights are gone, it could not delete itself.
    """
    try:
        live = await client.get(_BINDING, account.name)
    except NotFound:
        return
    if _is_ours(live):
        uid = live["metadata"]["uid"]
        await client.delete(_BINDING, account.name, uid=uid, propagation="Background", missing_ok=True)


def _is_ours(live: Mapping[str, Any]) -> bool:
    labels = live["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in _LABELS.items())


def _cluster_binding(account: ServiceAccountRef) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account.name, "labels": _LABELS},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": account.cluster_role},
        "subjects": [_subject(account)],
    }


def _dependents(account: ServiceAccountRef, binding_uid: str) -> list[dict[str, Any]]:
    """Return the objects that go with the binding: the account, and the right to renew its own token."""
    metadata = {
        "name": account.name,
        "namespace": ACCOUNT_NAMESPACE,
        "labels": _LABELS,
        "ownerReferences": [_owner(account, binding_uid)],
    }
    own_token = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [account.name],
        "verbs": ["create"],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata,
            "automountServiceAccountToken": False,
        },
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [own_token]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": account.name},
            "subjects": [_subject(account)],
        },
    ]


def _right_to_withdraw(account: ServiceAccountRef, binding_uid: str) -> list[dict[str, Any]]:
    """Return the right of the account to delete its binding, unless its role has every right anyway."""
    if account.cluster_role == _EVERY_RIGHT:
        return []
    name = f"{account.name}-self"
    metadata = {"name": name, "labels": _LABELS, "ownerReferences": [_owner(account, binding_uid)]}
    own_binding = {
        "apiGroups": [_RBAC],
        "resources": ["clusterrolebindings"],
        "resourceNames": [account.name],
        "verbs": ["get", "delete"],
    }
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [own_binding]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [_subject(account)],
        },
    ]


def _owner(account: ServiceAccountRef, binding_uid: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "name": account.name,
        "uid": binding_uid,
    }


def _subject(account: ServiceAccountRef) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": account.name, "namespace": ACCOUNT_NAMESPACE}


def _with_token(kubeconfig: bytes, token: str) -> bytes:
    """Return a kubeconfig for the same server and authority. The untrusted loader has accepted the original."""
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "kapsa-fleet", "user": {"token": token}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "kapsa-fleet"}}],
        "current-context": "cluster",
    }
    return msgspec.json.encode(document)
