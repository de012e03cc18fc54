"""Admission webhooks: the same on either engine, over HTTPS on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from kapsa.devcluster import DevCluster
from kapsa.devcluster.certificates import Authority
from kapsa.devcluster.wire.status_errors import StatusError

Object = dict[str, Any]
Answer = Callable[[Object], Object]


def allow(request: Object, **more: Any) -> Object:
    return {"uid": request["uid"], "allowed": True, **more}


def deny(request: Object, **status: Any) -> Object:
    return {"uid": request["uid"], "allowed": False, **({"status": status} if status else {})}


def patch(request: Object, *operations: Object) -> Object:
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return allow(request, patchType="JSONPatch", patch=encoded)


class Stage:
    """A cluster, a webhook server beside it, and a namespace to play in."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, namespace: str, hooks_url: str, bundle: str
    ) -> None:
        self._session = session
        self._url = url
        self.namespace = namespace
        self.hooks_url = hooks_url
        self._bundle = bundle
        self._installed: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.seen: dict[str, list[Object]] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/")
        review = await request.json()
        asked = review["request"]
        # A namespace's own ConfigMap, made by a controller when it likes, is nobody's case.
        if (asked.get("name") or "").startswith(("probe", "kube-root-ca.crt")):
            self.seen.setdefault("probe " + name, []).append(asked)
            response = allow(asked)
        else:
            self.seen.setdefault(name, []).append(asked)
            response = self.answers[name](asked)
            if response.get("hang"):
                await asyncio.sleep(response["hang"])
                response = allow(asked)
        answer = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}
        reply = web.json_response(answer)
        reply.force_close()  # nothing may outlive the test's loop
        return reply

    async def request(
        self, method: str, path: str, body: Object | None = None, **query: str
    ) -> tuple[int, Object]:
        async with self._session.request(method, self._url + path, json=body, params=query) as response:
            self.warnings = response.headers.getall("warning", [])
            document: Object = await response.json(content_type=None)
            return response.status, document

    async def create(self, name: str, data: dict[str, str] | None = None, **query: str) -> tuple[int, Object]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {}}
        return await self.request("POST", self.path(), body, **query)

    def path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps" + (f"/{name}" if name else "")

    async def install(self, kind: str, *hooks: tuple[str, Answer, Object], url: str = "") -> None:
        """Configure webhooks (name, what they answer, more of their configuration) and wait until they are asked."""
        webhooks = [self._webhook(name, more, url) for name, _, more in hooks]
        self.answers.update({name: answer for name, answer, _ in hooks})
        name = f"{kind}-{self.namespace}-{len(self._installed)}"
        resource = f"{kind}webhookconfigurations"
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind.capitalize()}WebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": webhooks,
        }
        status, answer = await self.request("POST", f"/apis/admissionregistration.k8s.io/v1/{resource}", body)
        assert status == 201, answer
        self._installed.append(f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}")
        if not url:
            async with asyncio.timeout(20):
                while not any(f"probe {n}" in self.seen for n, _, _ in hooks):
                    await self.create(f"probe-{uuid.uuid4().hex[:6]}", dryRun="All")
                    await asyncio.sleep(0.02)

    def _webhook(self, name: str, more: Object, url: str) -> Object:
        rule = {
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
        return {
            "name": f"{name}.example.com",
            "clientConfig": {"url": url or f"{self.hooks_url}/{name}", "caBundle": self._bundle},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }

    async def tidy(self) -> None:
        for path in self._installed:
            await self.request("DELETE", path)
        await self.request("DELETE", f"/api/v1/namespaces/{self.namespace}")


def _client_context(kubeconfig: Object, directory: Path) -> ssl.SSLContext | bool:
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0].get("user") or {}
    if "certificate-authority-data" not in cluster:
        return True
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    if "client-certificate-data" in user:
        certificate, key = directory / "client.crt", directory / "client.key"
        certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        key.write_bytes(base64.b64decode(user["client-key-data"]))
        context.load_cert_chain(certificate, key)
    return context


@pytest_asyncio.fixture
async def stage(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Stage]:
    authority = Authority()
    certificate, key = authority.issue_server(["127.0.0.1"]).write(tmp_path, "hooks")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    bundle = base64.b64encode(authority.pair.certificate).decode()
    connector = aiohttp.TCPConnector(ssl=_client_context(cluster.kubeconfig_data, tmp_path))
    async with aiohttp.ClientSession(connector=connector) as session:
        namespace = f"hooks-{uuid.uuid4().hex[:8]}"
        made = Stage(session, cluster.url, namespace, "", bundle)
        application = web.Application()
        application.router.add_post("/{name}", made.serve)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        made.hooks_url = f"https://127.0.0.1:{port}"
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"team": "blue"}},
        }
        status, answer = await made.request("POST", "/api/v1/namespaces", body)
        assert status == 201, answer
        try:
            yield made
        finally:
            await made.tidy()
            await runner.cleanup()


async def test_a_mutating_webhook_changes_the_object_and_sees_all_of_the_request(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})

    await stage.install("mutating", ("label", answer, {}))
    status, created = await stage.create("one", {"a": "1"}, fieldManager="tester")
    assert status == 201
    assert created["metadata"]["labels"] == {"seen": "yes"}
    (request,) = stage.seen["label"]
    assert request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["name"], request["namespace"], request["operation"]) == ("one", stage.namespace, "CREATE")
    assert request["object"]["data"] == {"a": "1"}
    assert request["object"]["kind"] == "ConfigMap"
    assert request["oldObject"] is None
    assert request["dryRun"] is False
    assert request["options"]["kind"] == "CreateOptions"
    assert request["options"]["fieldManager"] == "tester"
    assert "system:authenticated" in request["userInfo"]["groups"]


async def test_a_denial_carries_the_webhooks_words(stage: Stage) -> None:
    await stage.install(
        "validating",
        ("guard", lambda r: deny(r, message="not on a Friday", code=403, reason="Forbidden"), {}),
    )
    status, answer = await stage.create("one")
    assert status == 403
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request: not on a Friday'
    assert (answer["reason"], answer["status"]) == ("Forbidden", "Failure")
    assert (await stage.request("GET", stage.path("one")))[0] == 404


async def test_a_denial_without_words_is_a_bad_request_without_explanation(stage: Stage) -> None:
    await stage.install("validating", ("guard", deny, {}))
    status, answer = await stage.create("one")
    assert status == 400
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request without explanation'


async def test_a_reason_alone_is_the_explanation(stage: Stage) -> None:
    await stage.install("validating", ("guard", lambda r: deny(r, reason="Conflict", code=409), {}))
    status, answer = await stage.create("one")
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request: Conflict'


async def test_warnings_reach_the_client_with_success(stage: Stage) -> None:
    await stage.install("validating", ("nag", lambda r: allow(r, warnings=["data is deprecated"]), {}))
    status, _ = await stage.create("one")
    assert status == 201
    assert stage.warnings == ['299 - "data is deprecated"']


async def test_a_webhook_that_cannot_be_reached_fails_the_request_or_is_ignored(stage: Stage) -> None:
    def install(policy: str) -> Any:
        hook = (policy.lower(), allow, {"failurePolicy": policy})
        return stage.install("validating", hook, url="https://127.0.0.1:9/x")

    await install("Ignore")
    status, _ = await stage.create("one")
    assert status == 201
    await install("Fail")
    async with asyncio.timeout(20):
        while True:
            status, answer = await stage.create(f"two-{uuid.uuid4().hex[:6]}")
            if status != 201:
                break
            await asyncio.sleep(0.02)
    assert (status, answer["reason"]) == (500, "InternalError")
    assert answer["message"] == (
        'Internal error occurred: failed calling webhook "fail.example.com": failed to call webhook: '
        'Post "https://127.0.0.1:9/x?timeout=10s": dial tcp 127.0.0.1:9: connect: connection refused'
    )


async def test_a_slow_webhook_is_not_waited_for_beyond_its_timeout(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return {"hang": 5}

    await stage.install("validating", ("slow", answer, {"timeoutSeconds": 1}))
    status, said = await stage.create("one")
    assert status == 500
    assert said["message"] == (
        'Internal error occurred: failed calling webhook "slow.example.com": failed to call webhook: '
        f'Post "{stage.hooks_url}/slow?timeout=1s": context deadline exceeded'
    )


async def test_updates_and_deletions_carry_the_old_object(stage: Stage) -> None:
    await stage.install("validating", ("watch", allow, {}))
    await stage.create("one", {"a": "1"})
    _, live = await stage.request("GET", stage.path("one"))
    live["data"] = {"a": "2"}
    assert (await stage.request("PUT", stage.path("one"), live))[0] == 200
    assert (await stage.request("DELETE", stage.path("one")))[0] == 200
    created, updated, deleted = stage.seen["watch"]
    assert (created["operation"], updated["operation"], deleted["operation"]) == (
        "CREATE",
        "UPDATE",
        "DELETE",
    )
    assert (updated["oldObject"]["data"], updated["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert (deleted["oldObject"]["data"], deleted["object"]) == ({"a": "2"}, None)
    assert deleted["options"]["kind"] == "DeleteOptions"


async def test_a_deletion_can_be_denied(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return deny(request, message="keep it") if request["operation"] == "DELETE" else allow(request)

    await stage.install("validating", ("guard", answer, {}))
    await stage.create("one")
    status, said = await stage.request("DELETE", stage.path("one"))
    assert (status, said["message"]) == (
        400,
        'admission webhook "guard.example.com" denied the request: keep it',
    )
    assert (await stage.request("GET", stage.path("one")))[0] == 200


async def test_selectors_and_conditions_choose_the_requests(stage: Stage) -> None:
    condition = {"name": "big", "expression": "has(object.data) && 'big' in object.data"}
    await stage.install(
        "validating",
        ("everything", allow, {}),
        ("labelled", allow, {"objectSelector": {"matchLabels": {"app": "web"}}}),
        ("elsewhere", allow, {"namespaceSelector": {"matchLabels": {"team": "red"}}}),
        (
            "blue",
            allow,
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]
                }
            },
        ),
        ("big", allow, {"matchConditions": [condition]}),
    )
    await stage.create("plain")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "full", "labels": {"app": "web"}},
        "data": {"big": "1"},
    }
    assert (await stage.request("POST", stage.path(), body))[0] == 201
    names = {
        hook: [r["name"] for r in stage.seen.get(hook, [])]
        for hook in ("everything", "labelled", "elsewhere", "blue", "big")
    }
    both = ["plain", "full"]
    assert names == {"everything": both, "labelled": ["full"], "elsewhere": [], "blue": both, "big": ["full"]}


async def test_a_dry_run_says_so(stage: Stage) -> None:
    await stage.install("mutating", ("label", allow, {"sideEffects": "NoneOnDryRun"}))
    status, _ = await stage.create("one", dryRun="All")
    assert status == 201
    (request,) = stage.seen["label"]
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]
    assert (await stage.request("GET", stage.path("one")))[0] == 404


async def test_mutating_webhooks_see_each_others_changes_and_can_ask_to_be_called_again(stage: Stage) -> None:
    def first(request: Object) -> Object:
        data = request["object"].get("data") or {}
        if "copied" in data or "second" not in data:
            return allow(request)
        return patch(request, {"op": "add", "path": "/data/copied", "value": data["second"]})

    def second(request: Object) -> Object:
        if "second" in (request["object"].get("data") or {}):
            return allow(request)
        return patch(request, {"op": "add", "path": "/data/second", "value": "here"})

    again = {"reinvocationPolicy": "IfNeeded"}
    await stage.install("mutating", ("first", first, again), ("second", second, {}))
    status, created = await stage.create("one", {"a": "1"})
    assert status == 201
    assert created["data"] == {"a": "1", "second": "here", "copied": "here"}
    assert [len(stage.seen[name]) for name in ("first", "second")] == [2, 1]


async def test_a_patch_that_does_not_apply_is_the_webhooks_fault(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "remove", "path": "/data/missing"})

    await stage.install("mutating", ("broken", answer, {}))
    status, said = await stage.create("one", {"a": "1"})
    assert (status, said["reason"]) == (500, "InternalError")


async def test_an_answer_with_another_uid_is_refused(stage: Stage) -> None:
    await stage.install("validating", ("confused", lambda _: {"uid": "x", "allowed": True}, {}))
    status, said = await stage.create("one")
    assert status == 500
    uid = stage.seen["confused"][0]["uid"]
    assert said["message"] == (
        'Internal error occurred: failed calling webhook "confused.example.com": received invalid webhook response: '
        f'expected response.uid="{uid}", got "x"'
    )


async def test_a_validating_webhook_may_not_patch(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/data/x", "value": "y"})

    await stage.install("validating", ("meddler", answer, {}))
    status, said = await stage.create("one")
    assert status == 500
    assert said["message"].endswith(
        "received invalid webhook response: validating webhook may not return response.patch"
    )


async def test_what_a_mutating_webhook_makes_is_validated(stage: Stage) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/data", "value": {"bad key": "x"}})

    await stage.install("mutating", ("spoiler", answer, {}))
    status, said = await stage.create("one", {"a": "1"})
    assert (status, said["reason"]) == (422, "Invalid")


@pytest.mark.virtual_time
async def test_a_handler_in_the_process_can_stand_for_a_service(cluster: DevCluster) -> None:
    verbs = cluster.server.client
    asked: list[str] = []

    async def handler(path: str, body: bytes) -> tuple[int, bytes]:
        review = json.loads(body)
        asked.append(path)
        if review["request"]["name"] == "slow":
            await asyncio.sleep(3600)
        review["response"] = deny(review["request"], message="no")
        return 200, json.dumps(review).encode()

    cluster.server.webhooks.client.route("hooks/guard", handler)
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}
    webhook = {
        "name": "guard.example.com",
        "clientConfig": {"service": {"namespace": "hooks", "name": "guard", "path": "/check"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 7,
    }
    configurations = verbs.resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
    await verbs.create(configurations, {"metadata": {"name": "guard"}, "webhooks": [webhook]})
    secrets = verbs.resource("", "v1", "secrets")
    with pytest.raises(StatusError, match="denied the request: no"):
        await verbs.create(secrets, {"metadata": {"name": "one", "namespace": "default"}})
    with pytest.raises(
        StatusError, match=r"https://guard\.hooks\.svc:443/check\?timeout=7s.*deadline exceeded"
    ):
        await verbs.create(secrets, {"metadata": {"name": "slow", "namespace": "default"}})
    assert asked == ["/check?timeout=7s"] * 2


async def test_a_name_and_a_uid_are_given_between_mutation_and_validation(stage: Stage) -> None:
    await stage.install("mutating", ("early", allow, {}))
    await stage.install("validating", ("late", allow, {}))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    status, created = await stage.request("POST", stage.path(), body)
    assert status == 201, created
    (early,), (late,) = stage.seen["early"], stage.seen["late"]
    assert "name" not in early
    assert set(early["object"]["metadata"]) == {"generateName", "namespace", "managedFields"}
    assert late["name"] == late["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert late["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert late["object"]["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_a_webhook_hears_of_the_options_that_the_client_gave(stage: Stage) -> None:
    await stage.install("mutating", ("ear", allow, {}))
    await stage.create("silent")
    await stage.create("loud", fieldManager="me", fieldValidation="Strict", dryRun="All")
    silent, loud = (request["options"] for request in stage.seen["ear"])
    plain = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert silent == plain
    assert loud == {**plain, "dryRun": ["All"], "fieldManager": "me", "fieldValidation": "Strict"}
