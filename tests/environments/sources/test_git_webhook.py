"""Webhooks of GitHub and GitLab: a signed one triggers a poll, and an unsigned one does nothing."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.environments.resources import KINDS, Project
from kapsa.environments.sources.git_webhook import BODY_LIMIT, GitWebhook, WebhookResponse
from kapsa.environments.sources.poll_schedule import POLL_REQUESTED
from kapsa.environments.sources.webhook_server import PATH, GitWebhookServer
from kapsa.runtime.testing import Harness
from tests.environments.sandbox import Sandbox

SECRET = "a-long-webhook-secret"
GITHUB: dict[str, Any] = {
    "ref": "refs/heads/main",
    "repository": {
        "clone_url": "https://github.example.com/Org/App.git",
        "ssh_url": "git@github.example.com:Org/App.git",
    },
}
GITLAB: dict[str, Any] = {
    "object_kind": "push",
    "project": {"git_http_url": "https://gitlab.example.com/org/app.git", "git_ssh_url": "nonsense"},
}


class Receiver:
    """A receiver of webhooks, and projects it may concern."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.webhook = GitWebhook(sandbox.client, SECRET)

    async def project(self, name: str, url: str) -> None:
        deployment = {"type": "manifest", "path": "deploy"}
        await self.sandbox.apply(Project, name, {"source": {"repositoryUrl": url}, "deployment": deployment})

    async def asked(self) -> dict[str, str]:
        """Return the projects with a requested poll, each with the value of its annotation."""
        projects = (await self.sandbox.client.list(Project, namespace=self.sandbox.namespace)).items
        noted = {each.name: each.metadata.annotations.get(POLL_REQUESTED, "") for each in projects}
        return {name: value for name, value in noted.items() if value}

    async def github(
        self, payload: Any = GITHUB, *, event: str = "push", delivery: str = "1", secret: str = SECRET
    ) -> WebhookResponse:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": f"sha256={signature}",
        }
        return await self.webhook.receive(headers, body)


@pytest_asyncio.fixture
async def receiver(sandbox: Sandbox) -> Receiver:
    made = Receiver(sandbox)
    await made.project("https", "https://github.example.com/org/app")
    await made.project("ssh", "git@github.example.com:org/app.git")
    await made.project("gitlab", "https://gitlab.example.com/org/app")
    await made.project("other", "https://github.example.com/org/another")
    return made


async def test_a_push_asks_for_polls_of_its_repositorys_projects_and_no_others(receiver: Receiver) -> None:
    verdict = await receiver.github()
    assert (verdict.status, verdict.polled) == (202, 2)
    assert await receiver.asked() == {"https": "1", "ssh": "1"}


async def test_gitlab_sends_the_secret_itself(receiver: Receiver) -> None:
    body = json.dumps(GITLAB).encode()
    headers = {"X-Gitlab-Token": SECRET, "X-Gitlab-Event-UUID": "uuid-1"}
    assert (await receiver.webhook.receive(headers, body)).polled == 1
    assert await receiver.asked() == {"gitlab": "uuid-1"}
    wrong = await receiver.webhook.receive({"X-Gitlab-Token": "wrong"}, body)
    assert wrong.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "sha1=" + "0" * 40},
        {"X-Hub-Signature-256": "sha256=ä" + "0" * 63},
        {"X-Hub-Signature": "sha1=" + hmac.new(SECRET.encode(), b"{}", "sha1").hexdigest()},
        {"X-Gitlab-Token": ""},
        {"X-Gitlab-Token": SECRET[:-1]},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64, "X-Gitlab-Token": SECRET},
    ],
)
async def test_what_is_not_signed_with_the_secret_does_nothing(
    receiver: Receiver, headers: dict[str, str]
) -> None:
    verdict = await receiver.webhook.receive(headers, json.dumps(GITHUB).encode())
    assert verdict == WebhookResponse(401, "the signature is missing or invalid")
    assert await receiver.asked() == {}


async def test_a_signature_is_about_the_body_that_came_with_it(receiver: Receiver) -> None:
    signature = hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={signature}"}
    assert (await receiver.webhook.receive(headers, json.dumps(GITHUB).encode())).status == 401


async def test_one_that_was_seen_before_asks_for_nothing(receiver: Receiver) -> None:
    await receiver.github(delivery="7")
    again = await receiver.github(delivery="7")
    assert (again.status, again.text, again.polled) == (202, "already received", 0)
    assert (await receiver.github(delivery="8")).polled == 2


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b"[" * 1_000_000, 400),
        (b'{"repository": ' * 100_000, 400),
        (b"[]", 400),
        ({"repository": "text"}, 400),
        ({"repository": {"clone_url": ["list"], "ssh_url": 7}}, 400),
        ({"repository": {"clone_url": "file:///etc/passwd"}}, 202),
        ({"repository": {"clone_url": "ext::sh -c id"}}, 400),
        ({"repository": {"clone_url": "--upload-pack=x"}}, 400),
        ({"repository": {"clone_url": "https://github.example.com/" + "x" * 5000}}, 400),
        (b"\xff\xfe" * 10, 400),
        (b'"' + b"x" * BODY_LIMIT + b'"', 413),
    ],
)
async def test_a_signed_body_of_any_kind_does_no_harm(receiver: Receiver, payload: Any, status: int) -> None:
    verdict = await receiver.github(payload)
    assert (verdict.status, verdict.polled) == (status, 0)
    assert await receiver.asked() == {}


async def test_events_that_are_not_about_commits_are_let_be(receiver: Receiver) -> None:
    assert (await receiver.github({}, event="ping")).text == "pong"
    assert (await receiver.github(event="star", delivery="2")).polled == 0
    assert (await receiver.github(event="pull_request", delivery="3")).polled == 2


def test_a_receiver_without_a_secret_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="need a secret"):
        GitWebhook(sandbox.client, "")


# -- over HTTP -----------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def server(cluster: DevCluster) -> AsyncIterator[GitWebhookServer]:
    harness = Harness(cluster)
    await harness.install(*KINDS)
    made = GitWebhookServer(GitWebhook(harness.client, SECRET), host="127.0.0.1", port=0)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        await harness.close()


async def test_webhooks_are_taken_on_one_path_and_by_post_only(server: GitWebhookServer) -> None:
    url = f"http://127.0.0.1:{server.port}"
    body = json.dumps(GITHUB).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    async with aiohttp.ClientSession() as session:

        async def post(path: str, data: bytes, headers: dict[str, str]) -> int:
            async with session.post(url + path, data=io.BytesIO(data), headers=headers) as answer:
                return answer.status

        signed = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Event": "push"}
        assert await post(PATH, body, signed) == 202
        assert await post(PATH, body, {}) == 401
        assert await post("/", body, signed) == 404
        assert await post(PATH, b"x" * (BODY_LIMIT + 1), signed) == 413
        async with session.get(url + PATH) as answer:
            assert answer.status == 405
