"""Secrets that hold the token of a service account, the same on both engines."""

from __future__ import annotations

import ssl
import uuid
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from tests.eventually import eventually

Object = dict[str, Any]
TYPE = "kubernetes.io/service-account-token"


class Accounts:
    """A namespace with a service account, and the tokens in its Secrets."""

    def __init__(self, client: Client, cluster: DevCluster, namespace: str) -> None:
        self._client = client
        self._cluster = cluster
        self.namespace = namespace

    async def create(self, kind: str, name: str, annotations: Object | None = None, **fields: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace, "annotations": annotations or {}}
        made = await self._client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})
        return dict(made)

    async def secret(self, account: str = "robot") -> None:
        await self.create("Secret", "token", {"kubernetes.io/service-account.name": account}, type=TYPE)

    async def read(self, kind: str, name: str) -> Object | None:
        listed = await self._client.list(f"v1/{kind}", namespace=self.namespace)
        return next((dict(each) for each in listed if each["metadata"]["name"] == name), None)

    async def delete(self, kind: str, name: str) -> None:
        await self._client.delete(f"v1/{kind}", name, namespace=self.namespace)

    async def filled(self) -> Object:
        """Wait until the Secret has a token, and return it."""
        held = await eventually(
            lambda: self.read("Secret", "token"),
            lambda each: "token" in (each or {}).get("data", {}),
            "a token",
        )
        assert held is not None
        return held

    async def gone(self) -> None:
        """Wait until the Secret is deleted."""
        await eventually(lambda: self.read("Secret", "token"), lambda each: each is None, "no Secret")

    async def user_of(self, token: str) -> Object | None:
        """Return the user of a token, None if it is refused."""
        tls: ssl.SSLContext | bool = True
        cluster = self._cluster.kubeconfig_data["clusters"][0]["cluster"]
        if authority := cluster.get("certificate-authority-data"):
            tls = ssl.create_default_context(cadata=b64decode(authority).decode())
        headers = {"Authorization": f"Bearer {token}"}
        path = f"{self._cluster.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with (
            aiohttp.ClientSession() as session,
            session.post(path, json={}, headers=headers, ssl=tls) as reply,
        ):
            answer = await reply.json()
        return answer["status"]["userInfo"] if reply.status == 201 else None


@pytest_asyncio.fixture
async def accounts(cluster: DevCluster) -> AsyncIterator[Accounts]:
    name = f"tokens-{uuid.uuid4().hex[:8]}"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        made = Accounts(client, cluster, name)
        await made.create("ServiceAccount", "robot")
        yield made


async def test_a_secret_gets_a_token_of_its_account(accounts: Accounts):
    await accounts.secret()
    secret, account = await accounts.filled(), await accounts.read("ServiceAccount", "robot")
    assert account is not None
    uid, namespace = account["metadata"]["uid"], accounts.namespace
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == uid
    assert b64decode(secret["data"]["namespace"]).decode() == namespace
    assert await accounts.user_of(b64decode(secret["data"]["token"]).decode()) == {
        "username": f"system:serviceaccount:{namespace}:robot",
        "uid": uid,
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ],
    }


async def test_the_token_ends_with_its_secret(accounts: Accounts):
    await accounts.secret()
    token = b64decode((await accounts.filled())["data"]["token"]).decode()
    await accounts.delete("Secret", "token")
    # The real server remembers a token for some seconds.
    await eventually(lambda: accounts.user_of(token), lambda user: user is None, "a refused token")


async def test_the_secret_is_deleted_with_its_account(accounts: Accounts):
    await accounts.secret()
    await accounts.filled()
    await accounts.delete("ServiceAccount", "robot")
    await accounts.gone()


async def test_a_secret_of_an_account_that_does_not_exist_is_deleted(accounts: Accounts):
    await accounts.secret("none")
    await accounts.gone()


async def test_a_deleted_secret_is_removed_from_the_list_of_its_account(accounts: Accounts):
    await accounts.create("ServiceAccount", "listed", secrets=[{"name": "token"}, {"name": "other"}])
    await accounts.secret("listed")
    await accounts.filled()
    await accounts.delete("Secret", "token")
    await eventually(
        lambda: accounts.read("ServiceAccount", "listed"),
        lambda each: (each or {}).get("secrets") == [{"name": "other"}],
        "one Secret in the list",
    )
