"""Certificate requests: an approved one is signed, and the certificate authenticates its user."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kapsa.devcluster import DevCluster
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.wire.exchange import Request
from tests.eventually import eventually

CLIENT = "kubernetes.io/kube-apiserver-client"
KEY = ec.generate_private_key(ec.SECP256R1())


def pkcs10(user: str) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(KEY, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def approval(**more: str) -> dict[str, Any]:
    return {"type": "Approved", "status": "True", "reason": "Test", "message": "yes", **more}


class Requests:
    """The certificate requests of a cluster."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._client: InProcessClient = cluster.server.client
        self._info = self._client.resource("certificates.k8s.io", "v1", "certificatesigningrequests")

    async def create(self, name: str, **more: Any) -> dict[str, Any]:
        spec = {"request": pkcs10(name), "signerName": CLIENT, "usages": ["client auth"], **more}
        return await self._client.create(self._info, {"metadata": {"name": name}, "spec": spec})

    async def patch(self, request: dict[str, Any], subresource: str, **status: Any) -> tuple[int, Any]:
        """Patch the status by a subresource. Return the status code and the response."""
        reply = await self._cluster.handle(
            Request(
                method="PATCH",
                path=f"/apis/certificates.k8s.io/v1/certificatesigningrequests/"
                f"{request['metadata']['name']}/{subresource}",
                headers={"content-type": "application/merge-patch+json"},
                body=json.dumps({"status": status}).encode(),
            )
        )
        assert isinstance(reply.body, bytes)
        return reply.status, json.loads(reply.body)

    async def approve(self, request: dict[str, Any]) -> dict[str, Any]:
        status, approved = await self.patch(request, "approval", conditions=[approval()])
        assert status == 200, approved
        return approved

    async def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self._client.get(self._info, "", name)["status"]
        return status


async def test_an_approved_request_is_signed_and_authenticates_its_user(tmp_path: Path) -> None:
    async with DevCluster(tls=True) as cluster:
        requests = Requests(cluster)
        await requests.approve(await requests.create("ada"))
        status = await eventually(
            lambda: requests.status("ada"), lambda status: "certificate" in status, "the certificate"
        )
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        certificate.write_bytes(base64.b64decode(status["certificate"]))
        key.write_bytes(
            KEY.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        authority = cluster.kubeconfig_data["clusters"][0]["cluster"]["certificate-authority-data"]
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        context.load_cert_chain(certificate, key)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{cluster.url}/api/v1/secrets", ssl=context) as response,
        ):
            assert response.status == 403
            assert 'User "ada" cannot list resource "secrets"' in (await response.json())["message"]


async def test_a_request_for_a_year_and_more_ends_with_the_authority() -> None:
    async with DevCluster(tls=True) as cluster:
        requests = Requests(cluster)
        await requests.approve(await requests.create("ada", expirationSeconds=10 * 365 * 86400))
        status = await eventually(
            lambda: requests.status("ada"), lambda status: "certificate" in status, "the certificate"
        )
        issued = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
        authority = cluster.kubeconfig_data["clusters"][0]["cluster"]["certificate-authority-data"]
        root = x509.load_pem_x509_certificate(base64.b64decode(authority))
        assert issued.not_valid_after_utc <= root.not_valid_after_utc


@pytest.mark.parametrize(
    ("usages", "message"),
    [
        (["client auth", "server auth"], "invalid usage for client certificate: server auth"),
        (["digital signature"], "missing required usage for client certificate: client auth"),
    ],
)
async def test_usages_that_are_not_a_client_s_fail(usages: list[str], message: str) -> None:
    async with DevCluster(tls=True) as cluster:
        requests = Requests(cluster)
        await requests.approve(await requests.create("ada", usages=usages))
        status = await eventually(
            lambda: requests.status("ada"), lambda status: len(status["conditions"]) == 2, "the failure"
        )
        failed = status["conditions"][1]
        assert (failed["type"], failed["reason"], failed["message"]) == (
            "Failed",
            "SignerValidationFailure",
            message,
        )
        assert "certificate" not in status


async def test_a_request_that_is_not_approved_or_of_another_signer_is_not_signed() -> None:
    async with DevCluster(tls=True) as cluster:
        requests = Requests(cluster)
        await requests.create("waiting")
        await requests.approve(await requests.create("other", signerName="example.com/signer"))
        await requests.approve(await requests.create("last"))
        await eventually(lambda: requests.status("last"), lambda status: "certificate" in status, "the last")
        assert "certificate" not in await requests.status("waiting")
        assert "certificate" not in await requests.status("other")


async def test_the_approval_sets_the_times_of_its_condition_and_no_certificate() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        requests = Requests(cluster)
        request = await requests.create("ada")
        status, approved = await requests.patch(
            request, "approval", conditions=[approval()], certificate="YQ=="
        )
        assert status == 200
        assert "certificate" not in approved["status"]
        (condition,) = approved["status"]["conditions"]
        assert condition["lastUpdateTime"] == condition["lastTransitionTime"] is not None


@pytest.mark.parametrize(
    ("subresource", "status", "message"),
    [
        ("status", {"conditions": [approval()]}, 'updates may not add a condition of type "Approved"'),
        (
            "approval",
            {"conditions": [approval(), approval(type="Denied")]},
            "Approved and Denied conditions are mutually exclusive",
        ),
        ("status", {"certificate": "YQ=="}, "must contain at least one CERTIFICATE PEM block"),
    ],
)
async def test_a_status_that_decides_wrongly_is_rejected(
    subresource: str, status: dict[str, Any], message: str
) -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        requests = Requests(cluster)
        code, refused = await requests.patch(await requests.create("ada"), subresource, **status)
        assert code == 422
        assert message in refused["message"]
