"""Admission webhooks over HTTPS on the loopback, the same on both engines."""

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
from tests.eventually import eventually

Object = dict[str, Any]
Answer = Callable[[Object], Object]


def allow(request: Object, **more: Any) -> Object:
    return {"uid": request["uid"], "allowed": True, **more}


def deny(request: Object, **status: Any) -> Object:
    return {"uid": request["uid"], "allowed": False, **({"status": status} if status else {})}


def patch(request: Object, *operations: Object) -> Object:
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return allow(request, patchType="JSONPatch", patch=encoded)


class WebhookCluster:
    """A cluster with a webhook server and a namespace of its own."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, namespace: str, hooks_url: str, bundle: str
    ) -> None:
        self._session = session
        self._url = url
        self.namespace = namespace
        self.hooks_url = hooks_url
        self.bundle = bundle
        """The certificate authority of the webhook server."""
        self.leaf = ""
        """The certificate of the webhook server itself."""
        self._installed: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.seen: dict[str, list[Object]] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/").replace("/", "-")
        review = await request.json()
        reviewed = review["request"]
        # A controller creates the namespace's own ConfigMap at any time; no test expects a review of it.
        if (reviewed.get("name") or "").startswith(("probe", "kube-root-ca.crt")):
            self.seen.setdefault("probe " + name, []).append(reviewed)
            response = allow(reviewed)
        else:
            self.seen.setdefault(name, []).append(reviewed)
            response = self.answers[name](reviewed)
            if response.get("hang"):
                await asyncio.sleep(response["hang"])
                response = allow(reviewed)
        answer = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}
        reply = web.json_response(answer)
        reply.force_close()  # no connection may outlive the test's loop
        return reply

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        headers: dict[str, str] | None = None,
        session: aiohttp.ClientSession | None = None,
        **query: str,
    ) -> tuple[int, Object]:
        async with (session or self._session).request(
            method, self._url + path, json=body, params=query, headers=headers
        ) as response:
            self.warnings = response.headers.getall("warning", [])
            document: Object = await response.json(content_type=None)
            return response.status, document

    async def create(self, name: str, data: dict[str, str] | None = None, **query: str) -> tuple[int, Object]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {}}
        return await self.request("POST", self.path(), body, **query)

    def path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps" + (f"/{name}" if name else "")

    async def install(self, kind: str, *hooks: tuple[str, Answer, Object], url: str = "") -> None:
        """Configure webhooks (name, response, more of their configuration) and wait until they are called."""
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
            "clientConfig": {"url": url or f"{self.hooks_url}/{name}", "caBundle": self.bundle},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }

    async def clean_up(self) -> None:
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
async def hooks(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[WebhookCluster]:
    authority = Authority()
    certificate, key = authority.issue_server(["127.0.0.1"]).write(tmp_path, "hooks")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    bundle = base64.b64encode(authority.pair.certificate).decode()
    connector = aiohttp.TCPConnector(ssl=_client_context(cluster.kubeconfig_data, tmp_path))
    async with aiohttp.ClientSession(connector=connector) as session:
        namespace = f"hooks-{uuid.uuid4().hex[:8]}"
        made = WebhookCluster(session, cluster.url, namespace, "", bundle)
        application = web.Application()
        made.leaf = base64.b64encode(certificate.read_bytes()).decode()
        application.router.add_post("/{name:.*}", made.serve)
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
            await made.clean_up()
            await runner.cleanup()


async def test_a_mutating_webhook_changes_the_object_and_sees_all_of_the_request(
    hooks: WebhookCluster,
) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})

    await hooks.install("mutating", ("label", answer, {}))
    status, created = await hooks.create("one", {"a": "1"}, fieldManager="tester")
    assert status == 201
    assert created["metadata"]["labels"] == {"seen": "yes"}
    (request,) = hooks.seen["label"]
    assert request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["name"], request["namespace"], request["operation"]) == ("one", hooks.namespace, "CREATE")
    assert request["object"]["data"] == {"a": "1"}
    assert request["object"]["kind"] == "ConfigMap"
    assert request["oldObject"] is None
    assert request["dryRun"] is False
    assert request["options"]["kind"] == "CreateOptions"
    assert request["options"]["fieldManager"] == "tester"
    assert "system:authenticated" in request["userInfo"]["groups"]


async def test_a_denial_carries_the_webhooks_message(hooks: WebhookCluster) -> None:
    await hooks.install(
        "validating",
        ("guard", lambda r: deny(r, message="not on a Friday", code=403, reason="Forbidden"), {}),
    )
    status, answer = await hooks.create("one")
    assert status == 403
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request: not on a Friday'
    assert (answer["reason"], answer["status"]) == ("Forbidden", "Failure")
    assert (await hooks.request("GET", hooks.path("one")))[0] == 404


async def test_a_denial_without_a_message_is_a_bad_request_without_explanation(hooks: WebhookCluster) -> None:
    await hooks.install("validating", ("guard", deny, {}))
    status, answer = await hooks.create("one")
    assert status == 400
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request without explanation'


async def test_a_reason_alone_is_the_explanation(hooks: WebhookCluster) -> None:
    await hooks.install("validating", ("guard", lambda r: deny(r, reason="Conflict", code=409), {}))
    status, answer = await hooks.create("one")
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == 'admission webhook "guard.example.com" denied the request: Conflict'


async def test_warnings_reach_the_client_with_success(hooks: WebhookCluster) -> None:
    await hooks.install("validating", ("nag", lambda r: allow(r, warnings=["data is deprecated"]), {}))
    status, _ = await hooks.create("one")
    assert status == 201
    assert hooks.warnings == ['299 - "data is deprecated"']


async def test_a_webhook_that_cannot_be_reached_fails_the_request_or_is_ignored(
    hooks: WebhookCluster,
) -> None:
    def install(policy: str) -> Any:
        hook = (policy.lower(), allow, {"failurePolicy": policy})
        return hooks.install("validating", hook, url="https://127.0.0.1:9/x")

    await install("Ignore")
    status, _ = await hooks.create("one")
    assert status == 201
    await install("Fail")
    async with asyncio.timeout(20):
        while True:
            status, answer = await hooks.create(f"two-{uuid.uuid4().hex[:6]}")
            if status != 201:
                break
            await asyncio.sleep(0.02)
    assert (status, answer["reason"]) == (500, "InternalError")
    assert answer["message"] == (
        'Internal error occurred: failed calling webhook "fail.example.com": failed to call webhook: '
        'Post "https://127.0.0.1:9/x?timeout=10s": dial tcp 127.0.0.1:9: connect: connection refused'
    )


async def test_a_slow_webhook_is_not_waited_for_beyond_its_timeout(hooks: WebhookCluster) -> None:
    def answer(request: Object) -> Object:
        return {"hang": 5}

    await hooks.install("validating", ("slow", answer, {"timeoutSeconds": 1}))
    status, response = await hooks.create("one")
    assert status == 500
    assert response["message"] == (
        'Internal error occurred: failed calling webhook "slow.example.com": failed to call webhook: '
        f'Post "{hooks.hooks_url}/slow?timeout=1s": context deadline exceeded'
    )


async def test_updates_and_deletions_carry_the_old_object(hooks: WebhookCluster) -> None:
    await hooks.install("validating", ("watch", allow, {}))
    await hooks.create("one", {"a": "1"})
    _, live = await hooks.request("GET", hooks.path("one"))
    live["data"] = {"a": "2"}
    assert (await hooks.request("PUT", hooks.path("one"), live))[0] == 200
    assert (await hooks.request("DELETE", hooks.path("one")))[0] == 200
    created, updated, deleted = hooks.seen["watch"]
    assert (created["operation"], updated["operation"], deleted["operation"]) == (
        "CREATE",
        "UPDATE",
        "DELETE",
    )
    assert (updated["oldObject"]["data"], updated["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert (deleted["oldObject"]["data"], deleted["object"]) == ({"a": "2"}, None)
    assert deleted["options"]["kind"] == "DeleteOptions"


async def test_a_deletion_can_be_denied(hooks: WebhookCluster) -> None:
    def answer(request: Object) -> Object:
        return deny(request, message="keep it") if request["operation"] == "DELETE" else allow(request)

    await hooks.install("validating", ("guard", answer, {}))
    await hooks.create("one")
    status, response = await hooks.request("DELETE", hooks.path("one"))
    assert (status, response["message"]) == (
        400,
        'admission webhook "guard.example.com" denied the request: keep it',
    )
    assert (await hooks.request("GET", hooks.path("one")))[0] == 200


async def test_selectors_and_conditions_choose_the_requests(hooks: WebhookCluster) -> None:
    condition = {"name": "big", "expression": "has(object.data) && 'big' in object.data"}
    await hooks.install(
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
    await hooks.create("plain")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "full", "labels": {"app": "web"}},
        "data": {"big": "1"},
    }
    assert (await hooks.request("POST", hooks.path(), body))[0] == 201
    names = {
        hook: [r["name"] for r in hooks.seen.get(hook, [])]
        for hook in ("everything", "labelled", "elsewhere", "blue", "big")
    }
    both = ["plain", "full"]
    assert names == {"everything": both, "labelled": ["full"], "elsewhere": [], "blue": both, "big": ["full"]}


async def test_a_dry_run_is_marked_in_the_review(hooks: WebhookCluster) -> None:
    await hooks.install("mutating", ("label", allow, {"sideEffects": "NoneOnDryRun"}))
    status, _ = await hooks.create("one", dryRun="All")
    assert status == 201
    (request,) = hooks.seen["label"]
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]
    assert (await hooks.request("GET", hooks.path("one")))[0] == 404


async def test_mutating_webhooks_see_each_others_changes_and_can_be_reinvoked(hooks: WebhookCluster) -> None:
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
    await hooks.install("mutating", ("first", first, again), ("second", second, {}))
    status, created = await hooks.create("one", {"a": "1"})
    assert status == 201
    assert created["data"] == {"a": "1", "second": "here", "copied": "here"}
    assert [len(hooks.seen[name]) for name in ("first", "second")] == [2, 1]


async def test_a_patch_that_does_not_apply_is_the_webhooks_fault(hooks: WebhookCluster) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "remove", "path": "/data/missing"})

    await hooks.install("mutating", ("broken", answer, {}))
    status, response = await hooks.create("one", {"a": "1"})
    assert (status, response["reason"]) == (500, "InternalError")


async def test_a_response_with_another_uid_is_rejected(hooks: WebhookCluster) -> None:
    await hooks.install("validating", ("confused", lambda _: {"uid": "x", "allowed": True}, {}))
    status, response = await hooks.create("one")
    assert status == 500
    uid = hooks.seen["confused"][0]["uid"]
    assert response["message"] == (
        'Internal error occurred: failed calling webhook "confused.example.com": received invalid webhook response: '
        f'expected response.uid="{uid}", got "x"'
    )


async def test_a_validating_webhook_may_not_patch(hooks: WebhookCluster) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/data/x", "value": "y"})

    await hooks.install("validating", ("meddler", answer, {}))
    status, response = await hooks.create("one")
    assert status == 500
    assert response["message"].endswith(
        "received invalid webhook response: validating webhook may not return response.patch"
    )


async def test_the_result_of_a_mutating_webhook_is_validated(hooks: WebhookCluster) -> None:
    def answer(request: Object) -> Object:
        return patch(request, {"op": "add", "path": "/data", "value": {"bad key": "x"}})

    await hooks.install("mutating", ("spoiler", answer, {}))
    status, response = await hooks.create("one", {"a": "1"})
    assert (status, response["reason"]) == (422, "Invalid")


@pytest.mark.virtual_time
async def test_a_handler_in_the_process_can_replace_a_service(cluster: DevCluster) -> None:
    verbs = cluster.server.client
    reviewed: list[str] = []

    async def handler(path: str, body: bytes) -> tuple[int, bytes]:
        review = json.loads(body)
        reviewed.append(path)
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
    assert reviewed == ["/check?timeout=7s"] * 2


async def test_a_name_and_a_uid_are_set_between_mutation_and_validation(hooks: WebhookCluster) -> None:
    await hooks.install("mutating", ("early", allow, {}))
    await hooks.install("validating", ("late", allow, {}))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    status, created = await hooks.request("POST", hooks.path(), body)
    assert status == 201, created
    (early,), (late,) = hooks.seen["early"], hooks.seen["late"]
    assert "name" not in early
    assert set(early["object"]["metadata"]) == {"generateName", "namespace", "managedFields"}
    assert late["name"] == late["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert late["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert late["object"]["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_a_webhook_gets_the_options_of_the_client(hooks: WebhookCluster) -> None:
    await hooks.install("mutating", ("ear", allow, {}))
    await hooks.create("silent")
    await hooks.create("loud", fieldManager="me", fieldValidation="Strict", dryRun="All")
    silent, loud = (request["options"] for request in hooks.seen["ear"])
    plain = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert silent == plain
    assert loud == {**plain, "dryRun": ["All"], "fieldManager": "me", "fieldValidation": "Strict"}


async def test_a_bundle_may_be_the_certificate_of_the_webhook_itself(hooks: WebhookCluster) -> None:
    """envtest registers it so: the issuer is in nobody's hands any more."""
    hooks.bundle = hooks.leaf
    await hooks.install("validating", ("guard", lambda r: deny(r, message="no", code=403), {}))
    status, answer = await hooks.create("one")
    assert (status, answer["message"]) == (
        403,
        'admission webhook "guard.example.com" denied the request: no',
    )


async def test_a_bundle_is_the_only_trust(hooks: WebhookCluster) -> None:
    hooks.bundle = base64.b64encode(Authority("another").pair.certificate).decode()
    message = await _failure(hooks, hooks.hooks_url + "/guard")
    assert message == (
        'Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: '
        f'Post "{hooks.hooks_url}/guard?timeout=10s": tls: failed to verify certificate: '
        "x509: certificate signed by unknown authority"
    )


async def test_a_bundle_without_a_certificate_fails_the_call(hooks: WebhookCluster) -> None:
    hooks.bundle = base64.b64encode(b"this is not PEM").decode()
    message = await _failure(hooks, hooks.hooks_url + "/guard")
    assert message == (
        'Internal error occurred: failed calling webhook "guard.example.com": could not get REST client: '
        "unable to load root certificates: unable to parse bytes as PEM block"
    )


@pytest.mark.parametrize(
    ("path", "called"),
    [
        ("//check", "check"),
        ("///check//more/", "check-more"),
        ("/a/../check/./x", "check-x"),
        ("/check/", "check"),
        ("", ""),
    ],
)
async def test_the_path_of_a_webhook_is_cleaned(hooks: WebhookCluster, path: str, called: str) -> None:
    hooks.answers[called] = lambda r: deny(r, message="called", code=403)
    message = await _failure(hooks, hooks.hooks_url + path)
    assert message == 'admission webhook "guard.example.com" denied the request: called'


async def test_the_path_in_the_message_of_a_failed_call_is_cleaned(hooks: WebhookCluster) -> None:
    message = await _failure(hooks, "https://127.0.0.1:9//x/")
    assert message.endswith(
        'Post "https://127.0.0.1:9/x?timeout=10s": dial tcp 127.0.0.1:9: connect: connection refused'
    )


async def _failure(hooks: WebhookCluster, url: str) -> str:
    """Register a webhook at a URL and return the message of the first write that it fails."""
    await hooks.install("validating", ("guard", allow, {}), url=url)
    async with asyncio.timeout(20):
        while True:
            status, answer = await hooks.create(f"one-{uuid.uuid4().hex[:6]}")
            if status != 201:
                return str(answer["message"])
            await asyncio.sleep(0.02)


def _without_client(kubeconfig: Object) -> Object:
    return {**kubeconfig, "users": [{"name": "none", "user": {}}]}


async def test_webhooks_see_the_user_that_a_request_impersonates(hooks: WebhookCluster) -> None:
    await hooks.install("mutating", ("first", allow, {}))
    await hooks.install("validating", ("second", allow, {}))
    headers = {
        "Impersonate-User": "jane",
        "Impersonate-Group": "system:masters",
        "Impersonate-Uid": "u-1",
        "Impersonate-Extra-Scopes": "view",
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    status, answer = await hooks.request("POST", hooks.path(), body, headers)
    assert status == 201, answer
    await hooks.request("DELETE", hooks.path("one"), headers=headers)
    user = {
        "username": "jane",
        "uid": "u-1",
        "groups": ["system:masters", "system:authenticated"],
        "extra": {"scopes": ["view"]},
    }
    assert [each["userInfo"] for each in hooks.seen["first"] + hooks.seen["second"]] == [user] * 4


async def test_webhooks_see_the_service_account_of_a_token(
    hooks: WebhookCluster, cluster: DevCluster, tmp_path: Path
) -> None:
    space = f"/api/v1/namespaces/{hooks.namespace}"
    _, account = await hooks.request("POST", f"{space}/serviceaccounts", {"metadata": {"name": "robot"}})
    grant = {
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": hooks.namespace}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{hooks.namespace}/rolebindings"
    await hooks.request("POST", bindings, grant)
    _, answer = await hooks.request("POST", f"{space}/serviceaccounts/robot/token", {"spec": {}})
    headers = {"Authorization": f"Bearer {answer['status']['token']}"}
    await hooks.install("mutating", ("first", allow, {}))
    tls = _client_context(_without_client(cluster.kubeconfig_data), tmp_path)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        # The real server's authorizer follows a new binding a moment later.
        await eventually(
            lambda: hooks.request("POST", hooks.path(), body, headers, session),
            lambda answer: answer[0] == 201,
            "the right to create a ConfigMap",
        )
    user = hooks.seen["first"][-1]["userInfo"]
    (credential,) = user["extra"].pop("authentication.kubernetes.io/credential-id")
    assert credential.startswith("JTI=")
    assert user == {
        "username": f"system:serviceaccount:{hooks.namespace}:robot",
        "uid": account["metadata"]["uid"],
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{hooks.namespace}",
            "system:authenticated",
        ],
        "extra": {},
    }


async def test_a_condition_can_ask_the_authorizer_about_the_user(hooks: WebhookCluster) -> None:
    condition = {
        "name": "trusted",
        "expression": "!request.name.startsWith('one') || authorizer.requestResource.check('none').allowed()",
    }
    await hooks.install("validating", ("asked", deny, {"matchConditions": [condition]}))
    status, answer = await hooks.create("one")
    expected = 'admission webhook "asked.example.com" denied the request without explanation'
    assert (status, answer["message"]) == (400, expected)
