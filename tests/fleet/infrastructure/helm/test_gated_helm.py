"""Releases that the real helm changes behind the gate."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.helm.gated_helm import HelmBounds
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone, ClusterRefused
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.helm import HelmFailed
from kapsa.fleet.orchestrator.rollout.helm_failures import HELM_CONFLICT
from kapsa.runtime import ApiStatus, Client, Forbidden, Response, TransportError
from tests.eventually import eventually
from tests.fleet.charts import crd
from tests.fleet.real_helm import CLUSTER, ApiWrite, RealHelm, config_map, failure, hook, lease, real_helm


async def test_a_release_is_installed_upgraded_rolled_back_and_removed_and_each_write_is_audited(
    helm: RealHelm,
) -> None:
    assert await helm.upgrade("1.0.0") == 1
    assert await helm.upgrade("2.0.0") == 2
    assert await helm.data() == {"version": "2.0.0"}
    assert await helm.helm.rollback(CLUSTER, helm.release(), 1, lease()) == 3
    assert await helm.data() == {"version": "1.0.0"}
    history = await helm.helm.history(CLUSTER, helm.release())
    assert [(each.revision, each.status.value, each.version, each.description) for each in history] == [
        (1, "superseded", "1.0.0", "demo 1.0.0"),
        (2, "superseded", "2.0.0", "demo 2.0.0"),
        (3, "deployed", "1.0.0", "Rollback to 1"),
    ]
    await helm.helm.uninstall(CLUSTER, helm.release(), lease())
    assert await helm.states() == []
    first = helm.audit.entries[1].payload
    assert [write["verb"] + " " + write["resource"] for write in first["writes"]] == [
        f"PATCH namespaces {helm.namespace}",
        f"POST secrets {helm.namespace}/",
        f"PATCH configmaps {helm.namespace}/app",
        f"PUT secrets {helm.namespace}/sh.helm.release.v1.demo.v1",
    ]
    verbs = ("upgrade", "upgrade", "rollback", "uninstall")
    assert helm.audit.actions() == [f"helm.{verb}{end}" for verb in verbs for end in ("Begin", "")]


CERTIFICATE_CHART = {
    "templates/secret.yaml": (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: serving}\n"
        '{{- $made := genSelfSignedCert "app" nil nil 1 }}\n'
        "stringData: {tls.crt: {{ $made.Cert | quote }}}\n"
    )
}


async def test_the_api_server_receives_the_approved_manifest_and_not_what_the_chart_renders_to_now(
    helm: RealHelm,
) -> None:
    approved = config_map("serving", helm.namespace, certificate="the approved one")
    approved["metadata"]["annotations"] = {"note": "yes: \u00fc, '\"', #"}
    before = hook("migrate", helm.namespace, "pre-install", step="1")
    bodies: dict[str, Any] = {}

    async def keep(write: ApiWrite) -> None:
        if write.method == "PATCH" and not write.answered and not write.to_history:
            sent = json.loads(write.body)
            bodies[sent["metadata"]["name"]] = sent

    helm.transport.tamper = keep
    chart = helm.chart(files=CERTIFICATE_CHART)
    await helm.helm.upgrade(helm.request(before, approved, chart_digest=chart), lease())
    assert set(bodies) == {helm.namespace, "migrate", "serving"}
    assert without_owner(bodies["serving"]) == approved
    assert bodies["migrate"]["data"] == {"step": "1"}


def without_owner(sent: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the marks by which Helm recognizes its release."""
    metadata = dict(sent["metadata"])
    for field, start in (("labels", "app.kubernetes.io/managed-by"), ("annotations", "meta.helm.sh/")):
        kept = {key: value for key, value in metadata.pop(field).items() if not key.startswith(start)}
        metadata |= {field: kept} if kept else {}
    return {**sent, "metadata": metadata}


async def test_no_upgrade_rollback_or_uninstall_takes_a_crd_away(helm: RealHelm) -> None:
    definition = crd()
    owner = {"release-name": "demo", "release-namespace": helm.namespace}
    definition["metadata"] |= {
        "annotations": {f"meta.helm.sh/{key}": value for key, value in owner.items()},
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
    }
    kind = "apiextensions.k8s.io/v1/CustomResourceDefinition"
    await helm.client.create(definition)
    await eventually(
        lambda: helm.client.get(kind, "widgets.example.com"),
        lambda live: any(
            each["type"] == "Established" for each in (live.get("status") or {}).get("conditions") or ()
        ),
        "the CRD is served",
    )
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"},
    }
    await helm.client.create(widget)
    before = await helm.client.get(kind, "widgets.example.com")
    app = config_map("app", helm.namespace)
    await helm.helm.upgrade(helm.request(definition, app), lease())
    await helm.helm.upgrade(helm.request(app), lease())
    await helm.helm.rollback(CLUSTER, helm.release(), 1, lease())
    await helm.helm.uninstall(CLUSTER, helm.release(), lease())
    assert await helm.states() == []
    assert await helm.client.get(kind, "widgets.example.com") == before
    assert await helm.client.get("example.com/v1/Widget", "w", namespace="default")


async def test_a_cluster_that_stops_answering_leaves_our_revision_pending(helm: RealHelm) -> None:
    async def break_off(write: ApiWrite) -> None:
        if not write.to_history and "configmaps" in write.path:
            raise TransportError("the connection broke off", sent=True)

    helm.transport.tamper = break_off
    with pytest.raises(ClusterUnreachable, match="the connection broke off"):
        await helm.upgrade()
    helm.transport.tamper = None
    assert await helm.states() == [(1, "pending-install")]
    with pytest.raises(ClusterGone):
        await helm.helm.history(uuid.UUID(int=1), helm.release())


async def test_a_cluster_that_does_not_say_what_it_serves_is_unreachable(
    helm: RealHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = helm.transport.request

    async def without_discovery(method: str, path: str, **options: Any) -> Response:
        if "/namespaces/" in path:
            return await request(method, path, **options)
        return failure(504, "the request timed out")

    monkeypatch.setattr(helm.transport, "request", without_discovery)
    with pytest.raises(
        ClusterUnreachable, match=r"GET /.*: the API server answered 504: the request timed out"
    ):
        await helm.upgrade()
    assert await helm.states() == []


async def test_a_rollback_to_a_cluster_that_does_not_say_what_it_serves_is_cut_off(
    helm: RealHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await helm.upgrade("1.0.0")
    await helm.upgrade("1.1.0")
    request = helm.transport.request

    async def without_discovery(method: str, path: str, **options: Any) -> Response:
        if "/namespaces/" in path or path.startswith("/version"):
            return await request(method, path, **options)
        return failure(504, "the request timed out")

    with monkeypatch.context() as patch:
        patch.setattr(helm.transport, "request", without_discovery)
        with pytest.raises(ClusterUnreachable, match="the API server answered 504"):
            await helm.helm.rollback(CLUSTER, helm.release(), 1, lease())
    assert await helm.states() == [(1, "superseded"), (2, "deployed"), (3, "pending-rollback")]
    assert await helm.data() == {"version": "1.1.0"}


async def test_a_field_that_somebody_sets_is_named_in_the_words_that_the_engine_looks_for(
    helm: RealHelm,
) -> None:
    await helm.upgrade("1.0.0")
    edit = {**config_map("app", helm.namespace), "data": {"version": "by hand"}}
    await helm.client.apply(edit, field_manager="kubectl-edit", force=True)
    with pytest.raises(HelmFailed, match=HELM_CONFLICT):
        await helm.upgrade("1.1.0")
    latest = (await helm.helm.history(CLUSTER, helm.release()))[-1]
    assert latest.status.value == "failed"
    assert HELM_CONFLICT in latest.description


async def test_a_value_that_helm_quotes_is_not_in_the_message(helm: RealHelm) -> None:
    with pytest.raises(HelmFailed, match="failed"):  # its description is not that of the next failure
        await helm.helm.upgrade(helm.contract_request(broken=True), lease())
    chart = helm.chart(files={"templates/fail.yaml": '{{ fail (printf "%s is weak" .Values.password) }}'})
    with pytest.raises(HelmFailed) as failure:
        await helm.upgrade(chart_digest=chart, values={"password": "hunter2-hunter2"})
    assert "*** is weak" in str(failure.value)
    assert "hunter2" not in str(failure.value) + repr(helm.audit.entries)
    assert await helm.states() == [(1, "failed")]


async def test_a_value_that_an_admission_webhook_quotes_is_not_in_the_message(helm: RealHelm) -> None:
    long = "x" * 100 + "y" * 2000

    async def deny(write: ApiWrite) -> Any:
        if write.answered or "configmaps" not in write.path:
            return None
        return failure(403, f'admission webhook "p.example.com" denied it: hunter2-hunter2 is weak, {long}')

    helm.transport.tamper = deny
    with pytest.raises(HelmFailed) as error:
        await helm.upgrade(values={"password": "hunter2-hunter2", "other": {"key": long}, "mode": "denied"})
    assert "*** is weak" in str(error.value)
    assert "hunter2" not in str(error.value) + repr(helm.audit.entries)
    assert "xxxx" not in str(error.value)


async def test_a_run_that_takes_too_long_is_ended() -> None:
    async def hang(write: ApiWrite) -> None:
        await asyncio.sleep(60)

    bounds = HelmBounds(run=timedelta(seconds=2))
    async with DevCluster(tls=True) as cluster, real_helm(cluster, bounds) as helm:
        helm.transport.tamper = hang
        with pytest.raises(HelmFailed, match="helm took longer than 2 s"):
            await helm.upgrade()


async def test_a_rollback_does_not_wait_behind_upgrades_that_take_long() -> None:
    async with DevCluster(tls=True) as cluster, real_helm(cluster, HelmBounds(parallel=2)) as helm:
        await helm.upgrade("1.0.0")
        await helm.upgrade("2.0.0")
        held, go_on = asyncio.Event(), asyncio.Event()

        async def hold(write: ApiWrite) -> None:
            if "slow" in write.path and not write.answered:
                held.set()
                await go_on.wait()

        helm.transport.tamper = hold
        slow = [
            helm.request(config_map(name, helm.namespace), release=ReleaseRef(name, helm.namespace))
            for name in ("slow-1", "slow-2", "slow-3")
        ]
        upgrades = [asyncio.create_task(helm.helm.upgrade(each, lease())) for each in slow]
        try:
            await asyncio.wait_for(held.wait(), 60)
            back = helm.helm.rollback(CLUSTER, helm.release(), 1, lease())
            assert await asyncio.wait_for(back, 120) == 3
            assert not any(each.done() for each in upgrades)
        finally:
            go_on.set()
            assert await asyncio.gather(*upgrades) == [1, 1, 1]


async def test_a_right_that_is_missing_is_a_refusal_and_not_an_outage(helm: RealHelm) -> None:
    def refuse() -> Client:
        raise Forbidden(ApiStatus(code=403, message="secrets is forbidden"))

    helm.connected = refuse
    with pytest.raises(ClusterRefused, match="secrets is forbidden"):
        await helm.helm.history(CLUSTER, helm.release())
