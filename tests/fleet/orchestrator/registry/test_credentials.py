"""Tokens that the clusters themselves refuse, and kubeconfigs that are about to expire."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
import yaml

from kapsa.devcluster import DevCluster, HostClock
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterEnvironment, ManagedCluster
from kapsa.fleet.orchestrator.ports.clusters import CredentialRejected, IssuedAccess
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster, UpdateCluster
from tests.fleet.orchestrator.conftest import Registry

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
LONGER_THAN_A_TOKEN = timedelta(hours=7)


class ShiftedClock(HostClock):
    """The clock of a machine that a test moves."""

    shift = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.shift


async def register(registry: Registry, kubeconfig: str, **fields: Any) -> ManagedCluster:
    request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig, **fields)
    return (await registry.clusters.register(ADMIN, request)).cluster


async def who_am_i(registry: Registry, cluster: ManagedCluster) -> tuple[str, str]:
    """Return the id of the credential as the cluster sees it, and as the manager writes it down."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with registry.clients.client(cluster.id) as client:
        user = (await client.create(review))["status"]["userInfo"]
        return user["extra"]["authentication.kubernetes.io/credential-id"][0], client.credential_id


def credentials_in(registry: Registry, *actions: str) -> list[str]:
    return [each.payload["credential"] for each in registry.audit.entries if each.action in actions]


async def test_the_audit_has_the_id_that_the_cluster_knows_the_token_by_and_each_renewal_has_a_new_one(
    registry: Registry, kubeconfig: str
) -> None:
    cluster = await register(registry, kubeconfig)
    seen, used = await who_am_i(registry, cluster)
    assert seen == used == credentials_in(registry, "cluster.register")[0]
    registry.database.set_clock(cluster.created_at + timedelta(hours=4))
    renewed, used = await who_am_i(registry, cluster)
    assert renewed == used != seen
    assert credentials_in(registry, "cluster.issueToken") == [renewed]
    assert registry.audit.entries[-1].payload["reason"] == "half of its life is over"
    token = yaml.safe_load(await registry.credentials.access(cluster))["users"][0]["user"]["token"]
    assert token not in repr(registry.audit.entries)
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("discarded", [False, True], ids=["kept", "discarded"])
async def test_a_manager_that_was_away_longer_than_its_token_comes_back_or_asks_for_an_upload(
    registry: Registry, *, discarded: bool
) -> None:
    clock = ShiftedClock()
    async with DevCluster(tls=True, clock=clock) as devcluster:
        kubeconfig = Path(devcluster.kubeconfig).read_text()
        cluster = await register(registry, kubeconfig, discard_upload=discarded)
        before = (await who_am_i(registry, cluster))[0]
        clock.shift = LONGER_THAN_A_TOKEN
        registry.database.set_clock(cluster.created_at + LONGER_THAN_A_TOKEN)
        await registry.monitor.run_due()
        health = await registry.clusters.health(ADMIN, "dev-1")
        assert (health.condition is ClusterCondition.UNHEALTHY) is discarded
        if discarded:
            assert health.reason.endswith("was discarded: upload a new one (PATCH with kubeconfig)")
            await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=kubeconfig))
        assert (await who_am_i(registry, cluster))[0] != before
        registry.database.set_clock(cluster.created_at + LONGER_THAN_A_TOKEN + timedelta(minutes=1))
        await registry.monitor.run_due()
        assert (await registry.clusters.health(ADMIN, "dev-1")).condition is ClusterCondition.HEALTHY


@pytest.mark.sampled(1)
@pytest.mark.parametrize("discarded", [False, True], ids=["kept", "discarded"])
async def test_a_token_that_the_cluster_holds_for_expired_before_the_manager_does_is_replaced(
    registry: Registry, *, discarded: bool
) -> None:
    """The clock of the cluster runs ahead: only its API server knows that the token has expired."""
    clock = ShiftedClock()
    async with DevCluster(tls=True, clock=clock) as devcluster:
        kubeconfig = Path(devcluster.kubeconfig).read_text()
        cluster = await register(registry, kubeconfig, discard_upload=discarded)
        cluster = await registry.clusters.get(ADMIN, "dev-1")
        clock.shift = LONGER_THAN_A_TOKEN
        remedy = "was discarded: upload a new one" if discarded else "the next health check makes a new one"
        with pytest.raises(CredentialRejected, match=f"dev-1 rejected the token of this manager.*{remedy}"):
            await who_am_i(registry, cluster)
        registry.database.set_clock(cluster.created_at + timedelta(minutes=1))
        await registry.monitor.run_due()
        if discarded:
            health = await registry.clusters.health(ADMIN, "dev-1")
            assert "was discarded: upload a new one" in health.reason
            await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=kubeconfig))
        seen, used = await who_am_i(registry, cluster)
        assert seen == used


@pytest.mark.real
async def test_kube_apiserver_refuses_an_expired_token_and_the_next_check_makes_a_new_one(
    registry: Registry, kubeconfig: str, secure_cluster: DevCluster
) -> None:
    cluster = await register(registry, kubeconfig)
    key = (secure_cluster.real.directory / "service-account.key").read_bytes()
    expired = with_expired_token(await registry.credentials.access(cluster), key)
    access = IssuedAccess(expired, timedelta(hours=6))
    token = await registry.credentials.seal_token(cluster, access, after=1)
    async with registry.database.transaction() as connection:
        assert await registry.credentials.put(connection, cluster, token)
    with pytest.raises(CredentialRejected, match="Unauthorized"):
        await who_am_i(registry, cluster)
    registry.database.set_clock(cluster.created_at + timedelta(minutes=1))
    await registry.monitor.run_due()
    health = await registry.clusters.health(ADMIN, "dev-1")
    assert health.condition is not ClusterCondition.UNHEALTHY, health.reason
    (opened,) = (each for each in registry.audit.entries if each.action == "cluster.openUpload")
    assert "the token was rejected" in opened.payload["reason"]
    seen, used = await who_am_i(registry, cluster)
    assert seen == used == credentials_in(registry, "cluster.issueToken")[-1]
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


def with_expired_token(kubeconfig: bytes, key: bytes) -> bytes:
    """Return a kubeconfig whose token the cluster has signed, and which expired an hour ago."""
    document = yaml.safe_load(kubeconfig)
    user = document["users"][0]["user"]
    claims = jwt.decode(user["token"], options={"verify_signature": False})
    earlier = {name: claims[name] - 7 * 3600 for name in ("iat", "nbf", "exp")}
    header = {"kid": jwt.get_unverified_header(user["token"])["kid"]}
    user["token"] = jwt.encode({**claims, **earlier}, key, algorithm="ES256", headers=header)
    return msgspec.json.encode(document)


async def test_a_kubeconfig_that_expires_is_a_warning_from_fourteen_days_before(
    registry: Registry, kubeconfig: str
) -> None:
    cluster = await register(registry, kubeconfig)
    assert (await registry.clusters.health(ADMIN, "dev-1")).warnings == ()
    expiry = _certificate_expiry(kubeconfig)
    for before, warns in ((timedelta(days=15), False), (timedelta(days=13), True)):
        registry.database.set_clock(expiry - before)
        warnings = await registry.credentials.warnings(cluster, expiry - before)
        assert bool(warnings) is warns, warnings
    assert f"expires on {expiry:%Y-%m-%d}" in warnings[0]
    assert "PATCH with kubeconfig" in warnings[0]
    (late,) = await registry.credentials.warnings(cluster, expiry + timedelta(days=1))
    assert "expired on" in late
    assert "cluster.openUpload" not in registry.audit.actions()
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_the_warning_is_in_the_health_of_the_cluster_and_in_the_answer_to_the_upload(
    registry: Registry, kubeconfig: str
) -> None:
    registry.database.set_clock(_certificate_expiry(kubeconfig) - timedelta(days=3))
    request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig)
    result = await registry.clusters.register(ADMIN, request)
    assert "the uploaded kubeconfig expires on" in result.notices[0]
    await registry.monitor.run_due()
    health = await registry.clusters.health(ADMIN, "dev-1")
    assert health.warnings == result.notices
    await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(discard_upload=True))
    assert await registry.credentials.warnings(result.cluster, datetime.now(UTC) + timedelta(days=999)) == ()
    await registry.clusters.delete(ADMIN, "dev-1")


def _certificate_expiry(kubeconfig: str) -> datetime:
    from cryptography import x509

    data = yaml.safe_load(kubeconfig)["users"][0]["user"]["client-certificate-data"]
    return x509.load_pem_x509_certificate(base64.b64decode(data)).not_valid_after_utc
