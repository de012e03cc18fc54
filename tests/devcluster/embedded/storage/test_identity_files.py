"""Credentials of a cluster with a data directory: they are valid in its next run."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kapsa.devcluster import DevCluster
from kapsa.devcluster.errors import DataDamaged

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def cluster_in(directory: Path, port: int = 0) -> DevCluster:
    return DevCluster(data=directory, tls=True, controllers=False, port=port)


def trust(kubeconfig: dict[str, Any], directory: Path) -> ssl.SSLContext:
    user = kubeconfig["users"][0]["user"]
    authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=b64decode(authority).decode())
    for name in ("client-certificate", "client-key"):
        (directory / name).write_bytes(b64decode(user[f"{name}-data"]))
    context.load_cert_chain(directory / "client-certificate", directory / "client-key")
    return context


async def test_kubeconfig_and_token_of_an_earlier_run_are_accepted(tmp_path: Path):
    data = tmp_path / "data"
    async with cluster_in(data) as cluster:
        kubeconfig = cluster.kubeconfig_data
        context = trust(kubeconfig, tmp_path)
        async with aiohttp.ClientSession() as session:
            await session.post(cluster.url + ACCOUNTS, json={"metadata": {"name": "robot"}}, ssl=context)
            path = f"{cluster.url}{ACCOUNTS}/robot/token"
            async with session.post(path, json={"spec": {}}, ssl=context) as reply:
                token = (await reply.json())["status"]["token"]
    async with cluster_in(data) as cluster, aiohttp.ClientSession() as session:
        assert cluster.url == kubeconfig["clusters"][0]["cluster"]["server"]
        async with session.get(f"{cluster.url}{ACCOUNTS}/robot", ssl=context) as reply:
            assert reply.status == 200
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        plain = ssl.create_default_context(
            cadata=b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        )
        async with session.post(
            f"{cluster.url}/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json=review,
            ssl=plain,
            headers={"Authorization": f"Bearer {token}"},
        ) as reply:
            user = (await reply.json())["status"]["userInfo"]["username"]
    assert user == "system:serviceaccount:default:robot"


async def test_the_keys_are_readable_by_their_owner_only(tmp_path: Path):
    async with cluster_in(tmp_path / "data"):
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert (modes["authority.pem"], modes["token.key"]) == (0o600, 0o600)


async def test_another_port_is_used_while_the_earlier_one_is_busy(tmp_path: Path):
    data = tmp_path / "data"
    async with cluster_in(data) as cluster:
        earlier = int(cluster.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", earlier)):
        async with cluster_in(data) as cluster:
            assert int(cluster.url.rpartition(":")[2]) not in (0, earlier)


async def test_two_data_directories_have_two_authorities(tmp_path: Path):
    kubeconfigs = []
    for name in ("one", "two"):
        async with cluster_in(tmp_path / name) as cluster:
            kubeconfigs.append(cluster.kubeconfig_data["clusters"][0]["cluster"])
    one, two = (each["certificate-authority-data"] for each in kubeconfigs)
    assert one != two


@pytest.mark.parametrize("name", ["authority.pem", "token.key"])
async def test_a_damaged_key_is_reported_with_its_remedy(tmp_path: Path, name: str):
    data = tmp_path / "data"
    async with cluster_in(data):
        pass
    await asyncio.to_thread((data / name).write_text, "nothing")
    with pytest.raises(DataDamaged, match=rf"{name} is damaged: .* Delete it to start with a new one"):
        async with cluster_in(data):
            pass
