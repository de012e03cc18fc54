"""Clusters over HTTP, with a real kubeconfig of a devcluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio
import yaml

from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import ApiClient, application, token
from tests.fleet.api.objects import create_objects

PATH = "/api/v1/clusters"


@pytest_asyncio.fixture
async def kubeconfig() -> AsyncIterator[str]:
    async with DevCluster(tls=True) as cluster:
        yield Path(cluster.kubeconfig).read_text()


async def test_a_cluster_is_registered_shown_changed_and_deleted(api: ApiClient, kubeconfig: str) -> None:
    body = {"name": "dev-1", "environment": "Dev", "kubeconfig": kubeconfig, "labels": {"region": "eu"}}
    created = await api.post(PATH, body)
    assert created.status_code == 201, created.text
    assert created.headers["location"] == f"{PATH}/dev-1"
    shown = await api.get(f"{PATH}/dev-1")
    assert shown.json()["health"]["kubernetesVersion"].startswith("v1.")
    assert (await api.get(f"{PATH}/dev-1/health")).json() == shown.json()["health"]
    assert (await api.get(f"{PATH}/dev-1/releases")).json()["releases"] == []
    changed = await api.patch(f"{PATH}/dev-1", {"labels": {"tier": "gold"}}, headers={"If-Match": '"1"'})
    assert changed.json()["cluster"]["labels"] == {"tier": "gold"}
    stale = await api.patch(f"{PATH}/dev-1", {"labels": {}}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    adopted = await api.post(f"{PATH}/dev-1/adopt", {"operator": "none"})
    assert adopted.status_code == 400
    user = yaml.safe_load(kubeconfig)["users"][0]["user"]
    secrets = [str(user[key]) for key in ("token", "client-key-data") if user.get(key)]
    assert secrets
    texts = [created.text, shown.text, changed.text, (await api.get("/api/v1/audit")).text]
    assert not [secret for secret in secrets if any(secret in each for each in texts)]
    stale = await api.delete(f"{PATH}/dev-1", headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    assert (await api.delete(f"{PATH}/dev-1", headers={"If-Match": '"2"'})).json() == {"notices": []}
    assert (await api.get(f"{PATH}/dev-1")).status_code == 404


async def test_clusters_are_filtered_by_environment_prefix_and_labels(
    api: ApiClient, database: Database
) -> None:
    await create_objects(database, caller="ada")

    async def names(**query: str) -> list[str]:
        response = await api.get(PATH, params=query)
        assert response.status_code == 200, response.text
        return [each["name"] for each in response.json()["items"]]

    assert await names() == ["other-cluster", "own-cluster"]
    assert await names(prefix="own") == ["own-cluster"]
    assert await names(environment="Dev") == []
    assert await names(environment="Production", labels="owner=ada") == ["own-cluster"]
    for query in ({"environment": "Mars"}, {"labels": "no-equals"}):
        assert (await api.get(PATH, params=query)).status_code == 400


async def test_a_hostile_kubeconfig_is_refused_by_its_field(api: ApiClient) -> None:
    hostile = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://203.0.113.7:6443"}}],
        "users": [{"name": "u", "user": {"exec": {"command": "/bin/true"}}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    response = await api.post(
        PATH, {"name": "dev-1", "environment": "Dev", "kubeconfig": yaml.safe_dump(hostile)}
    )
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"] == "/kubeconfig"
    large = {"name": "dev-1", "environment": "Dev", "kubeconfig": "x" * 400 * 1024}
    assert (await api.post(PATH, large)).status_code == 413
    medium = {"name": "dev-1", "environment": "Dev", "kubeconfig": "x" * 300 * 1024}
    assert (await api.post(PATH, medium)).status_code == 400


async def test_registration_is_limited_to_five_per_minute_and_user(database: Database) -> None:
    database.set_clock(datetime(2027, 1, 4, 12, 0, tzinfo=UTC))
    client = ApiClient(application(database), token("ada", "Admin"))
    body = {"name": "UPPER", "environment": "Dev", "kubeconfig": ""}
    assert [(await client.post(PATH, body)).status_code for _ in range(6)] == [400] * 5 + [429]
