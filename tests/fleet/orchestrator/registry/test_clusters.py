"""Clusters: registered from kubeconfigs, with accounts and tokens of their own."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import uuid
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from sqlalchemy import text

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import (
    InvalidInput,
    NotAllowed,
    StateConflict,
    UnknownObject,
    VersionMismatch,
)
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterEnvironment
from kapsa.fleet.domain.registry.operators import ManagedOperator, UploadedChart
from kapsa.fleet.infrastructure.charts.published_charts import PublishedCharts
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.ports.clusters import ClusterFilter, ClusterUnreachable
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster, UpdateCluster
from kapsa.runtime import Client, NotFound
from tests.eventually import eventually
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.examples import START
from tests.fleet.orchestrator.conftest import Registry, make_registry

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
VIEWER = Principal("victor", frozenset({Role.VIEWER}))


def registration(kubeconfig: str, name: str = "dev-1", **fields: Any) -> RegisterCluster:
    return RegisterCluster(
        **{"name": name, "environment": ClusterEnvironment.DEV, "kubeconfig": kubeconfig, **fields}
    )


def secrets_of(kubeconfig: str) -> list[str]:
    user = yaml.safe_load(kubeconfig)["users"][0]["user"]
    return [str(user[field]) for field in ("token", "client-key-data") if user.get(field)]


async def accounts(client: Client) -> list[str]:
    listed = (await client.list("v1/ServiceAccount", namespace="kapsa-fleet")).items
    return [each["metadata"]["name"] for each in listed if each["metadata"]["name"] != "default"]


async def may_withdraw(client: Client, account: str) -> bool:
    """Return whether the account of a manager may delete its binding: kube-apiserver learns of a new rule a bit later."""
    rights = {"group": "rbac.authorization.k8s.io", "resource": "clusterrolebindings", "verb": "delete"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:kapsa-fleet:{account}",
            "resourceAttributes": {**rights, "name": account},
        },
    }
    return bool((await client.create(review))["status"]["allowed"])


async def dump(database: Database) -> str:
    """Return every row of the database as text."""
    async with database.transaction() as connection:
        names = await connection.execute(
            text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'fleet'")
        )
        rows = [
            str(row)
            for name in names.scalars().all()
            for row in (await connection.execute(text(f'SELECT t::text FROM fleet."{name}" t'))).scalars()
        ]
    return "\n".join(rows)


async def test_a_cluster_is_registered_with_version_health_inventory_and_an_account(
    registry: Registry, kubeconfig: str, secure_cluster: DevCluster
) -> None:
    result = await registry.clusters.register(ADMIN, registration(kubeconfig, labels={"region": "eu"}))
    cluster = result.cluster
    assert (cluster.name, cluster.environment, cluster.labels) == (
        "dev-1",
        ClusterEnvironment.DEV,
        {"region": "eu"},
    )
    assert cluster.health.kubernetes_version.startswith("v1.")
    assert cluster.health.condition in (ClusterCondition.HEALTHY, ClusterCondition.DEGRADED)
    assert cluster.server.startswith("https://127.0.0.1:")
    assert await registry.clusters.get(VIEWER, "dev-1") == cluster
    assert (await registry.clusters.releases(VIEWER, "dev-1")).problems == ()
    assert registry.audit.actions() == ["cluster.register"]
    async with registry.clients.client(cluster.id) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = (await client.create(review))["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:kapsa-fleet:kapsa-fleet-{cluster.id.hex[:12]}"
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_no_secret_of_a_cluster_is_in_a_response_the_audit_or_the_database(
    registry: Registry, kubeconfig: str
) -> None:
    request = registration(kubeconfig)
    result = await registry.clusters.register(ADMIN, request)
    token = yaml.safe_load(await registry.credentials.access(result.cluster))["users"][0]["user"]["token"]
    shown = msgspec.json.encode(result).decode() + repr(result) + repr(request) + repr(registry.audit.entries)
    stored = await dump(registry.database)
    for secret in (*secrets_of(kubeconfig), token, base64.b64encode(token.encode()).decode()):
        assert secret not in shown
        assert secret not in stored
        assert secret.encode().hex() not in stored
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_a_deleted_cluster_leaves_nothing_here_and_no_account_there(
    registry: Registry, kubeconfig: str, secure_cluster: DevCluster
) -> None:
    cluster = (await registry.clusters.register(ADMIN, registration(kubeconfig))).cluster
    account = f"kapsa-fleet-{cluster.id.hex[:12]}"
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        assert await client.get("v1/ServiceAccount", account, namespace="kapsa-fleet")
        assert await registry.clusters.delete(ADMIN, "dev-1") == ()
        with pytest.raises(NotFound):
            await client.get("rbac.authorization.k8s.io/v1/ClusterRoleBinding", account)
        await eventually(lambda: accounts(client), lambda names: account not in names, "no account")
    with pytest.raises(UnknownObject):
        await registry.clusters.get(VIEWER, "dev-1")
    stored = await dump(registry.database)
    assert "dev-1" not in stored
    assert cluster.server not in stored
    assert registry.audit.erased == [("cluster", str(cluster.id))]
    assert registry.audit.entries[-1].payload == {}


async def test_the_values_that_go_with_a_cluster_leave_an_entry_for_each_operator(
    registry: Registry, kubeconfig: str
) -> None:
    await registry.clusters.register(ADMIN, registration(kubeconfig))
    source = UploadedChart("widget")
    operator = ManagedOperator(
        uuid.uuid4(), "widget", "widgets", source, {}, {}, START, "dora", cluster_values={"dev-1": {"a": 1}}
    )
    async with registry.database.transaction() as connection:
        await PostgresOperators().insert(connection, operator)
    await registry.clusters.delete(ADMIN, "dev-1")
    deleted, changed = registry.audit.entries[-2:]
    assert (deleted.action, deleted.payload) == ("cluster.delete", {})
    assert (changed.action, changed.object_id) == ("operator.update", str(operator.id))
    assert changed.payload == {"name": "widget", "fields": ["cluster_values"], "cause": "cluster.delete"}


async def test_the_same_cluster_is_not_registered_twice(registry: Registry, kubeconfig: str) -> None:
    await registry.clusters.register(ADMIN, registration(kubeconfig))
    with pytest.raises(StateConflict, match="dev-1 exists already"):
        await registry.clusters.register(ADMIN, registration(kubeconfig))
    with pytest.raises(StateConflict, match="registered already, as dev-1"):
        await registry.clusters.register(ADMIN, registration(kubeconfig, "dev-2"))
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_registrations_at_the_same_time_leave_one_cluster_and_one_account(registry: Registry) -> None:
    async with DevCluster(tls=True) as cluster:
        content = Path(cluster.kubeconfig).read_text()
        attempts = [registry.clusters.register(ADMIN, registration(content, f"dev-{i}")) for i in range(4)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(each, StateConflict) for each in results) == 3
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            await eventually(lambda: accounts(client), lambda names: len(names) == 1, "one account")


HOSTILE: dict[str, tuple[str, Any]] = {
    "exec": ("users/0/user/exec", {"apiVersion": "client.authentication.k8s.io/v1", "command": "CANARY"}),
    "auth-provider": ("users/0/user/auth-provider", {"name": "gcp", "config": {"cmd-path": "CANARY"}}),
    "tokenFile": ("users/0/user/tokenFile", "CANARY"),
    "client-certificate": ("users/0/user/client-certificate", "CANARY"),
    "client-key": ("users/0/user/client-key", "CANARY"),
    "username": ("users/0/user/username", "admin"),
    "as": ("users/0/user/as", "system:admin"),
    "as-groups": ("users/0/user/as-groups", ["system:masters"]),
    "certificate-authority": ("clusters/0/cluster/certificate-authority", "CANARY"),
    "insecure-skip-tls-verify": ("clusters/0/cluster/insecure-skip-tls-verify", True),
    "proxy-url": ("clusters/0/cluster/proxy-url", "http://127.0.0.1:1"),
    "tls-server-name": ("clusters/0/cluster/tls-server-name", "evil.example.com"),
    "extensions": ("clusters/0/cluster/extensions", []),
    "metadata address": ("clusters/0/cluster/server", "https://169.254.169.254"),
    "encoded address": ("clusters/0/cluster/server", "https://2852039166"),
    "plain http": ("clusters/0/cluster/server", "http://127.0.0.1:6443"),
    "second context": ("contexts/1", {"name": "b", "context": {"cluster": "a", "user": "b"}}),
    "preferences": ("preferences", {"colors": True}),
}


def untouched(canary: Path) -> int:
    """Return the time of the last access, after another file has shown that this file system records it."""
    control = canary.with_name("control")
    control.write_text("read by the test")
    for file in (control, canary):  # older than the last change, for relatime
        os.utime(file, (1_000_000_000, 1_000_000_000))
    before = control.stat().st_atime_ns
    control.read_bytes()
    assert control.stat().st_atime_ns > before, (
        f"{canary.parent} is mounted with noatime, which hides reads: choose another TMPDIR"
    )
    return canary.stat().st_atime_ns


@pytest.mark.parametrize("field", HOSTILE)
async def test_a_hostile_kubeconfig_is_refused_with_nothing_executed_or_read(
    registry: Registry, kubeconfig: str, field: str, tmp_path: Path
) -> None:
    executed = tmp_path / "executed"
    canary = tmp_path / "canary"
    canary.write_text(f"#!/bin/sh\ntouch {executed}\necho planted-canary\n")
    canary.chmod(0o755)
    read_before = untouched(canary)
    path, value = HOSTILE[field]
    document = yaml.safe_load(kubeconfig)
    *parents, last = path.split("/")
    node: Any = document
    for part in parents:
        node = node[int(part)] if part.isdigit() else node[part]
    value = yaml.safe_load(yaml.safe_dump(value).replace("CANARY", str(canary)))
    if isinstance(node, list):
        node.append(value)
    else:
        node[last] = value
    with pytest.raises(InvalidInput) as error:
        await registry.clusters.register(ADMIN, registration(yaml.safe_dump(document)))
    assert [each.path for each in error.value.fields] == ["/kubeconfig"]
    assert not any(secret in str(error.value) for secret in secrets_of(kubeconfig))
    assert "planted-canary" not in str(error.value)
    assert not executed.exists()
    assert canary.stat().st_atime_ns == read_before
    assert registry.audit.entries == []


@pytest.mark.parametrize(
    "content", ["", "a: &a [1]\nb: [*a]", "[" * 100, "{}", "\x00", "x" * 300_000, "a: 1\na: 2\n"]
)
async def test_something_that_is_not_a_kubeconfig_is_refused(registry: Registry, content: str) -> None:
    with pytest.raises(InvalidInput):
        await registry.clusters.register(ADMIN, registration(content))


async def test_loopback_is_refused_unless_it_is_allowed(registry: Registry, kubeconfig: str) -> None:
    from kapsa.fleet.infrastructure.clusters.gateway import KubernetesGateway

    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1 is not allowed"):
        async with KubernetesGateway().connect(kubeconfig.encode()):
            pass


async def test_a_cluster_that_does_not_answer_or_does_not_let_us_in_is_not_registered(
    registry: Registry, kubeconfig: str
) -> None:
    document = yaml.safe_load(kubeconfig)
    document["users"][0]["user"] = {"token": "not-a-token-of-this-cluster"}
    with pytest.raises(InvalidInput, match="cannot be used"):
        await registry.clusters.register(ADMIN, registration(yaml.safe_dump(document)))
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    with pytest.raises(InvalidInput, match="cannot be used"):
        await registry.clusters.register(ADMIN, registration(yaml.safe_dump(document)))
    assert (await registry.clusters.page(VIEWER)).items == ()


async def test_ten_clusters_are_registered_and_checked(registry: Registry) -> None:
    async with AsyncExitStack() as stack:
        devclusters = [await stack.enter_async_context(DevCluster(tls=True)) for _ in range(10)]
        environments = [
            *[ClusterEnvironment.DEV] * 5,
            *[ClusterEnvironment.STAGING] * 3,
            *[ClusterEnvironment.PRODUCTION] * 2,
        ]
        for number, (cluster, environment) in enumerate(zip(devclusters, environments, strict=True)):
            content = Path(cluster.kubeconfig).read_text()
            labels = {"parity": "even" if number % 2 == 0 else "odd"}
            await registry.clusters.register(
                ADMIN, registration(content, f"c-{number}", environment=environment, labels=labels)
            )
        first = await registry.clusters.page(VIEWER, limit=6)
        second = await registry.clusters.page(VIEWER, limit=6, cursor=first.next_cursor)
        assert [each.name for each in first.items + second.items] == [f"c-{number}" for number in range(10)]
        chosen = ClusterFilter(environment=ClusterEnvironment.DEV, labels={"parity": "even"}, prefix="c-")
        assert [each.name for each in (await registry.clusters.page(VIEWER, chosen=chosen)).items] == [
            "c-0",
            "c-2",
            "c-4",
        ]
        now = await registry.database.now()
        registry.database.set_clock(now + timedelta(seconds=61))
        await devclusters[3].stop()
        assert await registry.monitor.run_due() == 10
        assert await registry.monitor.run_due() == 0
        for number in range(10):
            health = await registry.clusters.health(VIEWER, f"c-{number}")
            expected = ClusterCondition.UNHEALTHY if number == 3 else ClusterCondition.HEALTHY
            assert (health.condition, bool(health.reason)) == (expected, number == 3)
            assert health.last_checked == now + timedelta(seconds=61)
        lost = await registry.clusters.get(VIEWER, "c-3")
        assert lost.health.kubernetes_version.startswith("v1.")


async def test_labels_environment_and_windows_can_be_changed(registry: Registry, kubeconfig: str) -> None:
    await registry.clusters.register(ADMIN, registration(kubeconfig))
    result = await registry.clusters.update(
        ADMIN,
        "dev-1",
        UpdateCluster(environment=ClusterEnvironment.STAGING, labels={"a": "b"}),
        expected=1,
    )
    assert (result.cluster.environment, result.cluster.labels, result.cluster.version) == (
        ClusterEnvironment.STAGING,
        {"a": "b"},
        2,
    )
    with pytest.raises(VersionMismatch, match="has version 2, not 1"):
        await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(), expected=1)
    with pytest.raises(InvalidInput, match="not a label key"):
        await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(labels={"a b": "c"}))
    assert registry.audit.entries[-1].payload["fields"] == ["environment", "labels"]
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_a_new_kubeconfig_must_lead_to_the_same_cluster(registry: Registry, kubeconfig: str) -> None:
    cluster = (await registry.clusters.register(ADMIN, registration(kubeconfig))).cluster
    before = await registry.credentials.access(cluster)
    await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=kubeconfig))
    assert await registry.credentials.access(cluster) != before
    async with DevCluster(tls=True) as other:
        content = Path(other.kubeconfig).read_text()
        with pytest.raises(InvalidInput, match="another cluster than dev-1"):
            await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=content))
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_tokens_are_renewed_at_half_their_life_without_the_upload(
    registry: Registry, kubeconfig: str
) -> None:
    cluster = (await registry.clusters.register(ADMIN, registration(kubeconfig))).cluster
    first = await registry.credentials.access(cluster)
    assert await registry.credentials.access(cluster) == first
    registry.database.set_clock(cluster.created_at + timedelta(hours=2))
    assert await registry.credentials.access(cluster) == first
    registry.database.set_clock(cluster.created_at + timedelta(hours=4))
    second = await registry.credentials.access(cluster)
    assert second != first
    assert "cluster.openUpload" not in registry.audit.actions()
    registry.database.set_clock(cluster.created_at + timedelta(hours=9))
    assert await registry.credentials.access(cluster) != second
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_the_upload_is_opened_only_when_no_token_is_left_and_each_time_is_audited(
    registry: Registry, kubeconfig: str
) -> None:
    cluster = (await registry.clusters.register(ADMIN, registration(kubeconfig))).cluster
    first = await registry.credentials.access(cluster)
    registry.database.set_clock(cluster.created_at + timedelta(hours=7))
    assert await registry.credentials.access(cluster) != first
    opened, issued = registry.audit.entries[-2:]
    assert (opened.actor, opened.action, opened.payload["reason"]) == (
        "system:clusters",
        "cluster.openUpload",
        "no token is left",
    )
    assert issued.action == "cluster.issueToken"
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_a_discarded_upload_is_erased_and_the_consequence_is_stated(
    registry: Registry, kubeconfig: str
) -> None:
    result = await registry.clusters.register(ADMIN, registration(kubeconfig, discard_upload=True))
    assert "longer than a token's life needs a new upload" in result.notices[0]
    assert not (await registry.clusters.get(VIEWER, "dev-1")).has_upload
    registry.database.set_clock(result.cluster.created_at + timedelta(hours=7))
    with pytest.raises(ClusterUnreachable, match="was discarded: upload a new one"):
        await registry.credentials.access(result.cluster)
    assert await registry.monitor.run_due() == 1
    health = await registry.clusters.health(VIEWER, "dev-1")
    assert (health.condition, "was discarded" in health.reason) == (ClusterCondition.UNHEALTHY, True)
    await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=kubeconfig))
    assert (await registry.clusters.get(VIEWER, "dev-1")).has_upload
    assert await registry.credentials.access(result.cluster)
    updated = await registry.clusters.update(ADMIN, "dev-1", UpdateCluster(discard_upload=True))
    assert (bool(updated.notices), updated.cluster.has_upload) == (True, False)
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_a_deleted_account_is_made_again_by_the_next_check(
    registry: Registry, kubeconfig: str, secure_cluster: DevCluster
) -> None:
    cluster = (await registry.clusters.register(ADMIN, registration(kubeconfig))).cluster
    account = f"kapsa-fleet-{cluster.id.hex[:12]}"
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        await client.delete("v1/ServiceAccount", account, namespace="kapsa-fleet")
    minutes = itertools.count(1)

    async def check() -> list[str]:
        registry.database.set_clock(cluster.created_at + timedelta(seconds=61 * next(minutes)))
        await registry.monitor.run_due()
        return registry.audit.actions()

    # kube-apiserver trusts a token for some seconds after its account is gone.
    await eventually(check, lambda actions: "cluster.openUpload" in actions, "the upload opened once more")
    assert (await registry.clusters.health(VIEWER, "dev-1")).condition is not ClusterCondition.UNHEALTHY
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_only_admins_manage_clusters_and_every_role_may_read_them(registry: Registry) -> None:
    operator = Principal("maria", frozenset({Role.OPERATOR}))
    for principal in (VIEWER, operator, Principal("nobody", frozenset())):
        for attempt in (
            registry.clusters.register(principal, registration("")),
            registry.clusters.update(principal, "dev-1", UpdateCluster()),
            registry.clusters.delete(principal, "dev-1"),
        ):
            with pytest.raises(NotAllowed):
                await attempt
    with pytest.raises(NotAllowed):
        await registry.clusters.page(Principal("nobody", frozenset()))
    assert (await registry.clusters.page(operator)).items == ()


async def test_a_kubeconfig_that_is_uploaded_again_moves_the_account_to_the_role_of_the_settings(
    database: Database,
    vault: LocalVault,
    audit: AuditRecorder,
    charts: PublishedCharts,
    kubeconfig: str,
    secure_cluster: DevCluster,
) -> None:
    kind = "rbac.authorization.k8s.io/v1/ClusterRoleBinding"
    before = make_registry(database, vault, audit, charts)
    cluster = (await before.clusters.register(ADMIN, registration(kubeconfig))).cluster
    account = f"kapsa-fleet-{cluster.id.hex[:12]}"
    after = make_registry(database, vault, audit, charts, cluster_role="edit")
    async with Client.connect(kubeconfig=secure_cluster.kubeconfig) as client:
        assert (await client.get(kind, account))["roleRef"]["name"] == "cluster-admin"
        await after.clusters.update(ADMIN, "dev-1", UpdateCluster(kubeconfig=kubeconfig))
        assert (await client.get(kind, account))["roleRef"]["name"] == "edit"
        owner = (await client.get(kind, account))["metadata"]["uid"]
        live = await client.get("v1/ServiceAccount", account, namespace="kapsa-fleet")
        assert [each["uid"] for each in live["metadata"]["ownerReferences"]] == [owner]
        await eventually(lambda: may_withdraw(client, account), bool, "the right to delete its own binding")
        assert await after.clusters.delete(ADMIN, "dev-1") == ()
        await eventually(lambda: accounts(client), lambda names: account not in names, "no account")
