"""HTTPS: client certificates, tokens and anonymous callers of the embedded engine."""

from __future__ import annotations

import ssl
import sys
import tempfile
import time
from base64 import b64decode
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kapsa.devcluster import DevCluster

PODS = "/api/v1/namespaces/default/pods"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def client(kubeconfig: dict[str, Any], *, certificate: bool = True) -> aiohttp.ClientSession:
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    if certificate:
        with tempfile.TemporaryDirectory() as directory:
            paths = [Path(directory) / name for name in ("crt", "key")]
            for path, field in zip(paths, ("client-certificate-data", "client-key-data"), strict=True):
                path.write_bytes(b64decode(user[field]))
            context.load_cert_chain(*paths)
    return aiohttp.ClientSession(cluster["server"], connector=aiohttp.TCPConnector(ssl=context))


async def test_the_kubeconfig_has_the_administrators_certificate():
    async with DevCluster(tls=True) as cluster, client(cluster.kubeconfig_data) as session:
        async with session.post(WHO_AM_I, json={}) as reply:
            info = (await reply.json())["status"]["userInfo"]
        assert (info["username"], info["groups"]) == (
            "kubernetes-admin",
            ["system:masters", "system:authenticated"],
        )
        async with session.get("/api/v1/namespaces", params={"watch": "true"}) as stream:
            assert b"ADDED" in await stream.content.readline()


async def test_a_caller_without_credentials_is_anonymous():
    async with DevCluster(tls=True) as cluster, client(cluster.kubeconfig_data, certificate=False) as session:
        async with session.get("/livez") as reply:
            assert reply.status == 200
        async with session.get(PODS) as reply:
            assert reply.status == 403
            assert 'User "system:anonymous" cannot list' in (await reply.json())["message"]
        async with session.get(PODS, headers={"Authorization": "Bearer x"}) as reply:
            assert reply.status == 401


async def test_a_token_works_without_a_certificate():
    async with DevCluster(tls=True) as cluster:
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        async with client(cluster.kubeconfig_data) as admin, admin.post(path, json={}) as reply:
            assert reply.status == 201
            token = (await reply.json())["status"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            client(cluster.kubeconfig_data, certificate=False) as session,
            session.post(WHO_AM_I, json={}, headers=headers) as reply,
        ):
            info = (await reply.json())["status"]["userInfo"]
        assert info["username"] == "system:serviceaccount:default:default"


async def test_a_certificate_names_the_user_and_the_groups():
    async with DevCluster(tls=True) as cluster:
        kubeconfig = cluster.kubeconfig_of("jane", ["team", "other"])
        async with client(kubeconfig) as session, session.post(WHO_AM_I, json={}) as reply:
            info = (await reply.json())["status"]["userInfo"]
        assert (info["username"], info["groups"]) == ("jane", ["team", "other", "system:authenticated"])


async def test_a_certificate_of_another_cluster_is_refused():
    async with DevCluster(tls=True) as cluster, DevCluster(tls=True) as other:
        kubeconfig = other.kubeconfig_of("jane")
        kubeconfig["clusters"] = cluster.kubeconfig_data["clusters"]
        async with client(kubeconfig) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(PODS)


async def test_certificates_need_tls():
    async with DevCluster() as cluster:
        with pytest.raises(RuntimeError, match="tls=True"):
            cluster.kubeconfig_of("jane")


async def test_the_authority_is_published():
    async with DevCluster(tls=True) as cluster, client(cluster.kubeconfig_data) as session:
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        async with session.get(path) as reply:
            assert "BEGIN CERTIFICATE" in (await reply.json())["data"]["client-ca-file"]


async def test_ten_clusters_start_in_under_two_seconds(capsys: pytest.CaptureFixture[str]):
    async with AsyncExitStack() as stack:
        began = time.process_time()
        for _ in range(10):
            await stack.enter_async_context(DevCluster(tls=True))
        used = time.process_time() - began
    with capsys.disabled():
        sys.stdout.write(f"\nten clusters with TLS: {used:.2f} s of CPU time\n")
    assert used < 2
