"""Tokens of service accounts on the embedded engine, without a socket."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.devcluster import DevCluster, Request
from kapsa.devcluster.clock import HostClock

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PODS = "/api/v1/namespaces/default/pods"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


class AdjustableClock(HostClock):
    """The host's clock with another time of day."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


class Session:
    """Requests to one cluster, with and without a token."""

    def __init__(self, cluster: DevCluster, clock: AdjustableClock) -> None:
        self.clock = clock
        self._cluster = cluster

    async def send(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        content = b"" if body is None else json.dumps(body).encode()
        reply = await self._cluster.handle(Request(method=method, path=path, body=content, headers=headers))
        assert isinstance(reply.body, bytes)
        return reply.status, json.loads(reply.body)

    async def token(self, **spec: Any) -> str:
        status, answer = await self.send("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
        assert status == 201, answer
        return str(answer["status"]["token"])

    async def who_am_i(self, token: str) -> tuple[int, Any]:
        return await self.send("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, token)

    async def review(self, token: str) -> Any:
        _, answer = await self.send("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token}})
        return answer["status"]


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    clock = AdjustableClock()
    async with DevCluster(http=False, controllers=False, clock=clock) as cluster:
        session = Session(cluster, clock)
        await session.send("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        yield session


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


async def test_a_token_authenticates_its_service_account(session: Session):
    status, answer = await session.who_am_i(await session.token())
    assert status == 201
    info = answer["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:robot"
    assert info["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]


async def test_a_service_account_without_a_role_is_forbidden(session: Session):
    status, answer = await session.send("GET", PODS, token=await session.token())
    assert (status, answer["reason"]) == (403, "Forbidden")


async def test_a_token_of_another_cluster_is_unauthorized(session: Session):
    async with DevCluster(http=False, controllers=False) as other:
        stranger = Session(other, session.clock)
        await stranger.send("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        token = await stranger.token()
    status, answer = await session.send("GET", PODS, token=token)
    assert (status, answer["message"]) == (401, "Unauthorized")


async def test_a_token_expires(session: Session):
    token = await session.token(expirationSeconds=600)
    session.clock.time += timedelta(seconds=650)  # within the leeway for clocks that differ
    assert (await session.who_am_i(token))[0] == 201
    session.clock.time += timedelta(seconds=20)
    assert (await session.who_am_i(token))[0] == 401
    assert (await session.review(token))["error"] == (
        "[invalid bearer token, service account token has expired]"
    )


async def test_a_token_that_was_used_ends_with_its_account_at_once(session: Session):
    token = await session.token()
    assert (await session.who_am_i(token))[0] == 201
    await session.send("DELETE", f"{ACCOUNTS}/robot")
    assert (await session.who_am_i(token))[0] == 401


async def test_the_token_of_a_pod_names_its_node_and_lives_longer_than_it_shows(session: Session):
    await session.send("POST", "/api/v1/nodes", {"metadata": {"name": "big"}})
    spec = {
        "serviceAccountName": "robot",
        "nodeName": "big",
        "containers": [{"name": "main", "image": "example.com/app:1"}],
    }
    assert (await session.send("POST", PODS, {"metadata": {"name": "one"}, "spec": spec}))[0] == 201
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "one"}
    token = await session.token(expirationSeconds=3607, boundObjectRef=reference)
    claims = claims_of(token)
    assert claims["kubernetes.io"]["node"]["name"] == "big"
    assert claims["kubernetes.io"]["warnafter"] == claims["iat"] + 3607
    assert claims["exp"] == claims["iat"] + 365 * 24 * 3600
    _, answer = await session.who_am_i(token)
    assert answer["status"]["userInfo"]["extra"]["authentication.kubernetes.io/node-name"] == ["big"]


async def test_the_key_of_tokens_is_published(session: Session):
    token = await session.token()
    _, document = await session.send("GET", "/.well-known/openid-configuration")
    assert document["issuer"] == claims_of(token)["iss"]
    _, keys = await session.send("GET", "/openid/v1/jwks")
    header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert [key["kid"] for key in keys["keys"]] == [header["kid"]]


async def test_another_scheme_is_not_a_token(session: Session):
    headers = {"authorization": "Basic amFuZTpzZWNyZXQ="}
    reply = await session._cluster.handle(Request(method="GET", path=PODS, headers=headers))
    assert reply.status == 200  # as without the header: over plain HTTP the caller is the administrator
