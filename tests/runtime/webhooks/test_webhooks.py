"""Webhooks over TLS on loopback: decisions, patches, conversion, limits, certificates, registration."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    Client,
    ConfigError,
    Converter,
    CustomResource,
    Lifetimes,
    MutatingWebhook,
    ObjectMeta,
    Spec,
    Status,
    ValidatingWebhook,
    WebhookRights,
    Webhooks,
    WriteRefused,
    allow,
    deny,
)
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.testing import InProcessTransport
from kapsa.runtime.webhooks._certificate_sources import DirectoryCertificates, SecretCertificates
from kapsa.runtime.webhooks._json_patch import difference
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority
from kapsa.runtime.webhooks.conversion import Conversions
from kapsa.runtime.webhooks.server import WebhookServer

VALIDATING = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
MUTATING = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"


class AppSpec(Spec):
    image: str = ""
    replicas: int = 1


class AppStatus(Status):
    ready: int = 0


class App(CustomResource[AppSpec, AppStatus], group="example.com", version="v1", hub=True):
    """An application."""


class OldSpec(Spec):
    picture: str = ""
    size: str = "1"


class OldApp(
    CustomResource[OldSpec, AppStatus], group="example.com", version="v1alpha1", kind="App", storage=False
):
    """An application in its first version."""


class OldAppConverter(Converter[OldApp, App]):
    def to_hub(self, resource: OldApp) -> App:
        spec = AppSpec(image=resource.spec.picture, replicas=int(resource.spec.size))
        return App(metadata=resource.metadata, spec=spec, status=resource.draft_status())

    def from_hub(self, resource: App) -> OldApp:
        spec = OldSpec(picture=resource.spec.image, size=str(resource.spec.replicas))
        return OldApp(metadata=resource.metadata, spec=spec, status=resource.draft_status())


class AppValidator(ValidatingWebhook[App]):
    operations = ("CREATE", "UPDATE", "DELETE")
    timeout_seconds = 1

    async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        if request.operation == "DELETE":
            assert request.old_object is not None
            return deny("it is protected") if request.old_object.spec.image == "precious" else allow()
        match request.object.spec.image:
            case "slow":
                await asyncio.sleep(30)
            case "bug":
                raise ZeroDivisionError("division by zero")
            case "cancelled":
                other = asyncio.create_task(asyncio.sleep(30))
                other.cancel()
                await other
            case "nonsense":
                return None  # type: ignore[return-value]
            case "sneaky":
                request.manifest["spec"]["replicas"] = 9
        if request.object.spec.replicas > 5:
            return deny(f"spec.replicas: at most 5, not {request.object.spec.replicas}", code=422)
        return allow(warnings=["v1 is new"] if request.user.username == "jane" else [])


class AppDefaulter(MutatingWebhook[App]):
    async def mutate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        spec = request.object.spec
        if not spec.image:
            request.change_spec(msgspec.structs.replace(spec, image="nginx"))
        request.manifest["metadata"].setdefault("labels", {})["team/owner"] = "a"
        return allow()


class PodPolicy(ValidatingWebhook[dict[str, Any]]):
    resource = "v1/Pod"
    failure_policy = "Ignore"
    namespace_selector = {"matchLabels": {"guarded": "yes"}}  # noqa: RUF012 - read only
    match_conditions = {"not-ours": "request.userInfo.username != 'kapsa'"}  # noqa: RUF012 - read only

    async def validate(self, request: AdmissionRequest[dict[str, Any]]) -> AdmissionResponse:
        return allow() if request.object["spec"].get("hostNetwork") is not True else deny("no host network")


def review(manifest: dict[str, Any] | None, **request: Any) -> dict[str, Any]:
    body = {"uid": "u-1", "operation": "CREATE", "object": manifest, "userInfo": {"username": "joe"}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**body, **request}}


def app(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "example.com/v1", "kind": "App", "metadata": metadata, "spec": spec}


class Running:
    def __init__(self, server: WebhookServer, client: Client, seen: list[tuple[str, str]]) -> None:
        self.server, self.client, self.seen = server, client, seen

    async def bundle(self) -> bytes:
        secret = await self.client.get("v1/Secret", "shop-webhook-certificates")
        return base64.b64decode(secret["data"]["ca.crt"])

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        tls = client_context(ca=await self.bundle())
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://127.0.0.1:{self.server.port}{path}", data=data, ssl=tls) as answer,
        ):
            text = await answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else text.decode()

    async def admit(self, path: str, manifest: dict[str, Any] | None, **request: Any) -> dict[str, Any]:
        status, answer = await self.post(path, review(manifest, **request))
        assert status == 200
        assert answer["response"]["uid"] == "u-1"
        response: dict[str, Any] = answer["response"]
        return response


@asynccontextmanager
async def running(webhooks: Webhooks) -> AsyncIterator[Running]:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        seen: list[tuple[str, str]] = []
        server = WebhookServer(
            webhooks, client, operator="shop", observe=lambda name, outcome, _: seen.append((name, outcome))
        )
        await server.start()
        try:
            async with asyncio.timeout(10):
                await server.ready.wait()
            yield Running(server, client, seen)
        finally:
            await server.stop()


def webhooks(*hooks: Any, **options: Any) -> Webhooks:
    return Webhooks(*hooks, host="127.0.0.1", port=0, url="https://127.0.0.1:1", **options)


VALIDATE = "/validate-example-com-v1-app"
MUTATE = "/mutate-example-com-v1-app"


# Deciding


async def test_a_validating_webhook_allows_denies_with_its_message_and_warns() -> None:
    async with running(webhooks(AppValidator())) as run:
        assert await run.admit(VALIDATE, app(replicas=5)) == {"uid": "u-1", "allowed": True}
        denied = await run.admit(VALIDATE, app(replicas=6))
        assert denied["allowed"] is False
        assert denied["status"]["message"] == "spec.replicas: at most 5, not 6"
        assert denied["status"]["code"] == 422
        warned = await run.admit(VALIDATE, app(), userInfo={"username": "jane"})
        assert warned["warnings"] == ["v1 is new"]
        assert [outcome for _, outcome in run.seen] == ["allowed", "denied", "allowed"]


async def test_a_delete_is_decided_by_the_old_object() -> None:
    async with running(webhooks(AppValidator())) as run:
        denied = await run.admit(VALIDATE, None, operation="DELETE", oldObject=app(image="precious"))
        assert denied["status"]["message"] == "it is protected"
        assert (await run.admit(VALIDATE, None, operation="DELETE", oldObject=app()))["allowed"]


@pytest.mark.parametrize(
    ("image", "outcome", "message"),
    [
        (
            "bug",
            "error",
            r"validate-app.example.com failed, so the write is denied: ZeroDivisionError: division by",
        ),
        ("nonsense", "error", "AppValidator.validate returned NoneType; return allow"),
        ("sneaky", "error", "AppValidator changed the object; use a MutatingWebhook"),
        (
            "cancelled",
            "error",
            "failed, so the write is denied: RuntimeError: something it awaited was cancelled",
        ),
        ("slow", "timeout", "did not respond within 0.5 s"),
    ],
)
async def test_a_webhook_that_fails_denies_with_a_clear_message_and_is_counted(
    image: str, outcome: str, message: str
) -> None:
    async with running(webhooks(AppValidator())) as run:
        response = await run.admit(VALIDATE, app(image=image))
        assert response["allowed"] is False
        assert message in response["status"]["message"]
        assert run.seen == [("validate-app.example.com", outcome)]


async def test_an_object_that_does_not_fit_the_model_is_denied_with_the_field() -> None:
    async with running(webhooks(AppValidator())) as run:
        response = await run.admit(VALIDATE, app(replicas="many"))
        assert response["allowed"] is False
        assert "App shop/web does not fit its model: spec.replicas" in response["status"]["message"]
        assert run.seen == [("validate-app.example.com", "misfit")]


async def test_a_mutating_webhook_responds_with_a_patch() -> None:
    async with running(webhooks(AppDefaulter())) as run:
        response = await run.admit(MUTATE, app(replicas=2, unknown={"kept": True}))
        assert response["patchType"] == "JSONPatch"
        assert json.loads(base64.b64decode(response["patch"])) == [
            {"op": "add", "path": "/metadata/labels", "value": {"team/owner": "a"}},
            {"op": "add", "path": "/spec/image", "value": "nginx"},
        ]


async def test_a_mutating_webhook_that_changes_nothing_responds_without_a_patch() -> None:
    async with running(webhooks(AppDefaulter())) as run:
        manifest = app(image="x")
        manifest["metadata"]["labels"] = {"team/owner": "a"}
        assert await run.admit(MUTATE, manifest) == {"uid": "u-1", "allowed": True}


async def test_built_in_kinds_are_passed_as_plain_data() -> None:
    async with running(webhooks(PodPolicy())) as run:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"hostNetwork": True}}
        response = await run.admit("/validate-core-v1-pod", pod)
        assert response["status"]["message"] == "no host network"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": 5}', b'{"request": {"uid": "x"}}'])
async def test_a_malformed_review_is_rejected_and_counted(body: bytes) -> None:
    async with running(webhooks(AppValidator())) as run:
        status, text = await run.post(VALIDATE, body)
        assert status == 400
        assert "not an AdmissionReview" in text
        assert run.seen == [("validate-app.example.com", "malformed")]


async def test_a_request_beyond_the_limit_is_rejected() -> None:
    async with running(webhooks(AppValidator(), max_body_bytes=10_000)) as run:
        status, text = await run.post(VALIDATE, review(app(image="x" * 20_000)))
        assert status == 413
        assert "exceeds 10000 bytes" in text


# Declaring


def test_a_webhook_needs_a_kind_and_a_valid_timeout() -> None:
    class Nameless(ValidatingWebhook[Any]):
        pass

    class Slow(ValidatingWebhook[App]):
        timeout_seconds = 60

    with pytest.raises(TypeError, match="Nameless has no kind"):
        Nameless()
    with pytest.raises(ValueError, match="between 1 and 30, got 60"):
        Slow()


def test_two_webhooks_at_one_path_are_rejected() -> None:
    class Other(ValidatingWebhook[App]):
        pass

    with pytest.raises(
        ValueError, match="AppValidator and Other are both served at /validate-example-com-v1-app"
    ):
        webhooks(AppValidator(), Other())
    with pytest.raises(ValueError, match="AppValidator and AppValidator are both served at"):
        webhooks(AppValidator(), AppValidator())


def test_webhooks_need_a_service_or_a_url_and_not_both() -> None:
    with pytest.raises(ValueError, match="either a service or a url"):
        Webhooks(AppValidator())
    with pytest.raises(ValueError, match="either a service or a url"):
        Webhooks(AppValidator(), service="a", url="https://b")


def test_the_rights_are_those_that_the_declaration_needs(tmp_path: Path) -> None:
    every = webhooks(AppValidator(), AppDefaulter(), converters=[OldAppConverter()])
    assert every.rights("shop") == WebhookRights(
        validating="shop",
        mutating="shop",
        conversion=("apps.example.com",),
        secret="shop-webhook-certificates",
    )
    assert webhooks(AppValidator(), cert_dir=tmp_path).rights("shop") == WebhookRights(validating="shop")


# Registering


async def test_the_operator_registers_its_webhooks_with_its_own_authority() -> None:
    async with running(webhooks(AppValidator(), AppDefaulter(), PodPolicy())) as run:
        validating = await run.client.get(VALIDATING, "shop")
        mutating = await run.client.get(MUTATING, "shop")
        bundle = base64.b64encode(await run.bundle()).decode()
    entries = {entry["name"]: entry for entry in validating["webhooks"] + mutating["webhooks"]}
    assert set(entries) == {
        "validate-app.example.com",
        "mutate-app.example.com",
        "validate-pod.core.kubernetes",
    }
    apps = entries["validate-app.example.com"]
    assert apps["clientConfig"] == {"url": f"https://127.0.0.1:1{VALIDATE}", "caBundle": bundle}
    assert apps["rules"][0]["resources"] == ["apps"]
    assert apps["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert (apps["failurePolicy"], apps["timeoutSeconds"]) == ("Fail", 1)
    pods = entries["validate-pod.core.kubernetes"]
    assert pods["failurePolicy"] == "Ignore"
    assert pods["namespaceSelector"] == {"matchLabels": {"guarded": "yes"}}
    assert pods["matchConditions"][0]["name"] == "not-ours"
    assert pods["rules"][0]["apiGroups"] == [""]
    assert entries["mutate-app.example.com"]["reinvocationPolicy"] == "Never"


async def test_an_up_to_date_registration_is_not_written_and_a_changed_one_is_restored() -> None:
    async with running(webhooks(AppValidator())) as run:
        writes: list[str] = []
        run.client.observe(lambda call, code, seconds: writes.append(call.verb) if call.writes else None)
        await run.server.keep()
        assert writes == []
        path = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        await run.client.patch(VALIDATING, "shop", path, type="json", field_manager="somebody")
        writes.clear()
        await run.server.keep()
        assert writes == ["patch"]
        live = await run.client.get(VALIDATING, "shop")
        assert live["webhooks"][0]["failurePolicy"] == "Fail"


async def test_a_registration_of_another_manager_only_gets_the_ca_bundle() -> None:
    async with running(webhooks(AppValidator())) as run:
        live = await run.client.get(VALIDATING, "shop")
        bundle = live["webhooks"][0]["clientConfig"].pop("caBundle")
        live["webhooks"][0]["timeoutSeconds"] = 7
        chart = {key: live[key] for key in ("apiVersion", "kind", "webhooks")}
        await run.client.delete(VALIDATING, "shop")
        await run.client.apply({**chart, "metadata": {"name": "shop"}}, field_manager="chart")
        await run.server.keep()
        made = (await run.client.get(VALIDATING, "shop"))["webhooks"][0]
        assert made["clientConfig"]["caBundle"] == bundle
        assert made["timeoutSeconds"] == 7
        chart["webhooks"][0]["timeoutSeconds"] = 8
        await run.client.apply({**chart, "metadata": {"name": "shop"}}, field_manager="chart")  # no conflict
        made = (await run.client.get(VALIDATING, "shop"))["webhooks"][0]
        assert (made["clientConfig"]["caBundle"], made["timeoutSeconds"]) == (bundle, 8)


def test_a_service_is_registered_with_its_namespace_and_the_certificate_has_its_names() -> None:
    declared = Webhooks(AppValidator(), service="hooks")
    assert declared.hosts("operators") == ["hooks.operators.svc", "hooks.operators.svc.cluster.local"]


# Certificates


class ShiftedClock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return self.ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@asynccontextmanager
async def secret_sources(count: int) -> AsyncIterator[tuple[ShiftedClock, Client, list[SecretCertificates]]]:
    clock = ShiftedClock()
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), clock=clock)
        yield clock, client, [
            SecretCertificates(client, namespace="default", name="certs", hosts=["a.svc"], lifetimes=Lifetimes())
            for _ in range(count)
        ]  # fmt: skip


async def test_replicas_that_start_together_share_one_certificate() -> None:
    async with secret_sources(4) as (_, client, sources):
        results = await asyncio.gather(*(source.current() for source in sources))
        assert all(result == results[0] for result in results)
        secret = await client.get("v1/Secret", "certs")
        assert secret["type"] == "kubernetes.io/tls"


async def test_a_rotation_by_one_replica_is_picked_up_by_the_other() -> None:
    async with secret_sources(2) as (clock, _, (one, other)):
        first = await one.current()
        clock.ahead = timedelta(days=70)
        renewed = await one.current()
        assert renewed[0] != first[0]
        assert renewed[1] == first[1]
        assert await other.current() == renewed


async def test_a_damaged_secret_is_replaced() -> None:
    async with secret_sources(1) as (_, client, (source,)):
        first = await source.current()
        broken = {"data": {"tls.crt": base64.b64encode(b"nonsense").decode()}}
        await client.patch("v1/Secret", "certs", broken)
        assert await source.current() != first


async def test_certificates_in_a_directory_are_reread_and_the_last_good_ones_kept(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("cert-manager", now=now, lifetime=timedelta(days=1))
    source = DirectoryCertificates(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read the webhook certificate .*tls\.crt: No such file"):
        await source.current()
    pairs = [
        issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=timedelta(days=1)) for _ in range(2)
    ]
    for pair in pairs:
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        assert await source.current() == (pair, b"")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    assert (await source.current())[1] == authority.certificate
    (tmp_path / "tls.key").unlink()
    assert await source.current() == (pairs[1], authority.certificate)


async def test_a_rotated_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("cert-manager", now=now, lifetime=timedelta(days=1))
    (tmp_path / "ca.crt").write_bytes(authority.certificate)

    def rotate() -> bytes:
        pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=timedelta(days=1))
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())

    async def served(port: int) -> bytes:
        tls = client_context(ca=authority.certificate)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return certificate

    first = rotate()
    async with running(webhooks(AppValidator(), cert_dir=tmp_path)) as run:
        assert await served(run.server.port) == first
        second = rotate()
        await run.server.keep()
        assert await served(run.server.port) == second != first


async def test_a_standby_serves_as_soon_as_the_leader_has_created_the_secret() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        leader = Client(InProcessTransport(cluster), field_manager="shop")

        def closed() -> float | None:
            raise WriteRefused("not the leader")

        standby = WebhookServer(webhooks(AppValidator()), leader.derive(before_write=closed), operator="shop")
        with pytest.raises(WriteRefused):
            await standby.keep()
        assert standby.port == 0
        first = WebhookServer(webhooks(AppValidator()), leader, operator="shop")
        await first.keep()
        await standby.keep()
        assert standby.port != 0
        await first.stop()
        await standby.stop()


# Converting


NEW: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "App",
    "metadata": {"name": "web", "uid": "7", "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}},
    "spec": {"image": "nginx", "replicas": 3},
    "status": {"ready": 2},
}


def test_versions_are_converted_through_the_hub_and_metadata_is_preserved() -> None:
    conversions = Conversions([OldAppConverter()])
    old = conversions.convert(NEW, "example.com/v1alpha1")
    assert old["apiVersion"] == "example.com/v1alpha1"
    assert old["spec"] == {"picture": "nginx", "size": "3"}
    assert old["status"]["ready"] == 2
    assert old["metadata"] == NEW["metadata"]
    back = conversions.convert(old, "example.com/v1")
    assert (back["spec"], back["metadata"]) == (NEW["spec"], NEW["metadata"])
    assert conversions.convert(NEW, "example.com/v1") is NEW


async def test_a_conversion_review_returns_all_objects_or_names_the_one_that_failed() -> None:
    async with running(webhooks(converters=[OldAppConverter()])) as run:
        request = {"uid": "c-1", "desiredAPIVersion": "example.com/v1alpha1", "objects": [NEW, NEW]}
        _, answer = await run.post("/convert", {"request": request})
        assert answer["response"]["result"] == {"status": "Success"}
        assert [each["spec"]["size"] for each in answer["response"]["convertedObjects"]] == ["3", "3"]
        old = {"apiVersion": "example.com/v1alpha1", "kind": "App", "metadata": {"name": "bad"}}
        request = {
            "uid": "c-2",
            "desiredAPIVersion": "example.com/v1",
            "objects": [{**old, "spec": {"size": "x"}}],
        }
        _, answer = await run.post("/convert", {"request": request})
        result = answer["response"]["result"]
        assert result["status"] == "Failure"
        assert "App /bad from example.com/v1alpha1 to example.com/v1: ValueError" in result["message"]
        assert run.seen == [("convert", "converted"), ("convert", "error")]


def test_a_converter_between_different_kinds_or_with_two_hubs_is_rejected() -> None:
    class Other(CustomResource[OldSpec, AppStatus], group="other.com", version="v1"):
        pass

    with pytest.raises(TypeError, match=r"Bad converts Other of other.com to App of example.com"):

        class Bad(Converter[Other, App]):
            pass

    with pytest.raises(TypeError, match="two converters for"):
        Conversions([OldAppConverter(), OldAppConverter()])


# Patches


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"op": "replace", "path": "/a", "value": 2}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a/b~c": 1}, {}, [{"op": "remove", "path": "/a~1b~0c"}]),
        ({"l": [1, 2, 3]}, {"l": [1, 9]}, [
            {"op": "replace", "path": "/l/1", "value": 9}, {"op": "remove", "path": "/l/2"}]),
        ({"l": [1]}, {"l": [1, 2, 3]}, [
            {"op": "add", "path": "/l/-", "value": 2}, {"op": "add", "path": "/l/-", "value": 3}]),
        ({"a": {"b": 1}}, {"a": [1]}, [{"op": "replace", "path": "/a", "value": [1]}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)  # fmt: skip
def test_the_patch_between_two_documents(before: Any, after: Any, patch: list[Any]) -> None:
    assert difference(before, after) == patch
    from kapsa.devcluster.embedded.apply.json_patch import json_patch

    assert json_patch(before, patch) == after


def test_a_converter_may_change_labels() -> None:
    class Relabel(OldAppConverter):
        def from_hub(self, resource: App) -> OldApp:
            metadata = ObjectMeta(name=resource.name, labels={"new": "label"})
            return OldApp(metadata=metadata, spec=OldSpec())

    converted = Conversions([Relabel()]).convert(NEW, "example.com/v1alpha1")
    assert converted["metadata"] == {**NEW["metadata"], "labels": {"new": "label"}}
