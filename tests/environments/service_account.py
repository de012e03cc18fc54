"""The operator's service account: its generated rights, on a control plane that enforces them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from kapsa.devcluster import DevCluster
from kapsa.environments.installation import NAME
from kapsa.environments.settings import Settings
from kapsa.runtime import AlreadyExists, Client, Operator, rbac_manifests

__all__ = ["act_as_service_account", "kubeconfig_of"]


async def act_as_service_account(
    cluster: DevCluster, operator: Operator, settings: Settings, directory: Path
) -> Path:
    """Grant the generated rights of this operator. Returns the kubeconfig of its service account.

    Only the real engine enforces them.
    """
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await _have_namespace(client, settings.namespace)
        for manifest in rbac_manifests(operator.rights(), name=NAME, namespace=settings.namespace):
            await client.apply(manifest, force=True)
        return await kubeconfig_of(cluster, client, NAME, settings.namespace, directory)


async def kubeconfig_of(
    cluster: DevCluster, client: Client, account: str, namespace: str, directory: Path
) -> Path:
    """Return a kubeconfig with a token of an existing service account."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    answer = await client.create_subresource(
        "v1/ServiceAccount", account, "token", request, namespace=namespace
    )
    file = directory / f"kubeconfig-{namespace}-{account}"
    file.write_text(
        yaml.safe_dump(_with_token(cluster.kubeconfig_data, answer["status"]["token"], namespace))
    )
    file.chmod(0o600)
    return file


def _with_token(admin: Mapping[str, Any], token: str, namespace: str) -> dict[str, Any]:
    current = _named(admin["contexts"], admin["current-context"])["context"]
    user = {"name": "service-account", "user": {"token": token}}
    context = {"cluster": current["cluster"], "user": user["name"], "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [_named(admin["clusters"], current["cluster"])],
        "users": [user],
        "contexts": [{"name": "service-account", "context": context}],
        "current-context": "service-account",
    }


def _named(entries: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


async def _have_namespace(client: Client, name: str) -> None:
    try:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except AlreadyExists:
        return
