"""Resource quotas with their controller: usage is counted, enforced, and taken back."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import ApiError, Client
from kapsa.runtime.testing import InProcessTransport

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "small", "namespace": "default"},
    "spec": {"hard": {"count/secrets": "1", "requests.cpu": "1"}},
}


def secret(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}


async def used(client: Client) -> dict[str, str]:
    quota = await client.get("v1/ResourceQuota", "small", namespace="default")
    return quota.get("status", {}).get("used", {})


async def test_the_controller_counts_and_admission_enforces():
    async with DevCluster(http=False) as cluster:
        client = Client(InProcessTransport(cluster))
        await client.create(secret("one"))
        await client.create(QUOTA)
        await asyncio.sleep(0.05)
        assert await used(client) == {"count/secrets": "1", "requests.cpu": "0"}
        with pytest.raises(ApiError, match="exceeded quota: small, requested: count/secrets=1"):
            await client.create(secret("two"))
        await client.delete("v1/Secret", "one", namespace="default")
        await asyncio.sleep(0.05)
        assert (await used(client))["count/secrets"] == "0"
        await client.create(secret("two"))


async def test_pods_need_the_requests_that_a_quota_counts():
    async with DevCluster(http=False) as cluster:
        client = Client(InProcessTransport(cluster))
        await client.create(QUOTA)
        await asyncio.sleep(0.05)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        with pytest.raises(ApiError, match="failed quota: small: must specify"):
            await client.create(pod)
