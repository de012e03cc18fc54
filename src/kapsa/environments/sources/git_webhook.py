"""Webhooks of GitHub and GitLab: a signed push triggers a poll of the repository, and nothing else.

The content of a webhook is never trusted. It names a repository; the projects of that repository get an
annotation, which makes the leading process poll. A forged webhook costs one poll; a lost one delays the next.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import structlog

from kapsa.adapters.errors import Refused
from kapsa.adapters.git.address import RepositoryAddress
from kapsa.environments.resources import Project
from kapsa.environments.sources.poll_schedule import POLL_REQUESTED
from kapsa.runtime import Client, ClientError

__all__ = ["GitWebhook", "WebhookResponse"]

_log = structlog.get_logger(__name__)

BODY_LIMIT = 5 * 1024 * 1024
_GITHUB_EVENTS = {"push", "pull_request", "create", "delete", "ping"}
_SEEN_LIMIT = 1000


class WebhookResponse(msgspec.Struct, frozen=True):
    """The HTTP response to a webhook."""

    status: int
    text: str
    polled: int = 0
    """The number of projects that are polled sooner."""


class GitWebhook:
    """The receiver of webhooks that are signed with one secret."""

    def __init__(self, client: Client, secret: str) -> None:
        if not secret:
            raise ValueError("git webhooks need a secret: unsigned webhooks are rejected")
        self._client = client
        self._secret = secret.encode()
        self._seen: dict[str, None] = {}

    async def receive(self, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Verify one request, and request polls if its signature is valid."""
        given = {name.lower(): value for name, value in headers.items()}
        if len(body) > BODY_LIMIT:
            return WebhookResponse(413, "the body is too large")
        if not self._is_signed(given, body):
            return WebhookResponse(401, "the signature is missing or invalid")
        delivery = given.get("x-github-delivery") or given.get("x-gitlab-event-uuid") or ""
        if delivery in self._seen:
            return WebhookResponse(202, "already received")
        if given.get("x-github-event") == "ping":
            return WebhookResponse(200, "pong")
        if (event := given.get("x-github-event")) is not None and event not in _GITHUB_EVENTS:
            return WebhookResponse(202, "ignored: the event is not about commits")
        try:
            payload = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return WebhookResponse(400, "the body is not JSON")
        addresses = {address for url in _urls(payload) if (address := _address(url)) is not None}
        if not addresses:
            return WebhookResponse(400, "the payload names no repository")
        polled = await self._request_polls(addresses, delivery or hashlib.sha256(body).hexdigest())
        self._remember(delivery)  # only now: the sender repeats a webhook without a response
        return WebhookResponse(202, f"polling {polled} projects", polled)

    def _is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        signature = headers.get("x-hub-signature-256", "")
        if signature:
            expected = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
            return hmac.compare_digest(signature.encode(), expected.encode())
        token = headers.get("x-gitlab-token", "")  # GitLab sends the secret itself
        return bool(token) and hmac.compare_digest(token.encode(), self._secret)

    def _remember(self, delivery: str) -> None:
        if not delivery:
            return
        self._seen[delivery] = None
        if len(self._seen) > _SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]

    async def _request_polls(self, addresses: set[tuple[str, str]], value: str) -> int:
        count = 0
        for project in (await self._client.list(Project)).items:
            if _address(project.spec.source.repository_url) not in addresses:
                continue
            patch = {"metadata": {"annotations": {POLL_REQUESTED: value[:63]}}}
            try:
                await self._client.patch(Project, project.name, patch, namespace=project.namespace)
            except ClientError as error:
                _log.warning("could not request a poll", project=str(project.metadata), error=str(error))
            else:
                count += 1
        return count


def _urls(payload: Any) -> Iterable[str]:
    """Yield the URLs by which payloads of GitHub and GitLab name the repository."""
    if not isinstance(payload, dict):
        return
    for part in ("repository", "project"):
        named = payload.get(part)
        if isinstance(named, dict):
            for field in ("clone_url", "ssh_url", "html_url", "git_http_url", "git_ssh_url", "web_url"):
                if isinstance(url := named.get(field), str):
                    yield url


def _address(url: str) -> tuple[str, str] | None:
    """Return host and path, which are the same for https and ssh; None if the URL is invalid."""
    try:
        address = RepositoryAddress.parse(url, protocols=("https", "ssh", "http", "file"))
    except Refused:
        return None
    return address.host.lower(), address.path.strip("/").removesuffix(".git").lower()
