"""Requests and responses in a form in which two engines can be compared.

A case is a list of steps. Each step is one HTTP request, or one watch with requests that are made while it is
open. A response is reduced to what a client can rely on: the status, the relevant headers, and the body with
uids, revisions and times replaced by marks. Two different uids get two different marks, so that "it is the
same object" and "the revision did not change" are compared although their values are not.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yaml

HEADERS_THAT_MATTER = ("content-type", "warning", "retry-after", "allow", "vary")
UNENFORCED = re.compile(r'299 - "not enforced by the embedded engine: [^"]*"(, )?')
"""A warning that the embedded engine alone has to give."""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
FINGERPRINT = re.compile(r"(?<=X509SHA256=)[0-9a-f]{64}")
GENERATED = re.compile(r"(?<=gen-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
CURRENT = re.compile(
    r"(?<=current: )\d+|(?<=in record \()\d+|(?<=\"resourceVersion\":\")\d+|(?<=\\\"resourceVersion\\\":\\\")\d+"
)
"""Revisions inside messages."""
SENT = re.compile(r"(?<=larger than max \()\d+")
"""The size of a request to etcd, which depends on what surrounds the object there."""
SELF_TYPE = re.compile(r"(?<=selfType)\d+")
"""The name of the type of `self` in the errors of CEL rules, which is a time."""
MANAGER = ("manager", "operation", "subresource", "apiVersion")
AGE = re.compile(r"^\d+[smhd](\d+[smhd])?$")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `{ns}` in path, query and body is the case's own namespace."""

    method: str
    path: str
    query: str = ""
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    headers: Mapping[str, str] = {}
    """A value with line feeds is sent as one header for each line."""
    anonymous: bool = False
    """True to send the request without the administrator's certificate."""
    delay: float = 0.0
    """Seconds to wait before the request: admission of the real server follows other objects a moment later."""
    until: str = ""
    """Repeat the request until the response contains this text or is an error: some changes take a moment."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A watch that stays open while `during` is sent. It ends after `events` events or by the server."""

    path: str
    query: str = ""
    during: Sequence[Call] = ()
    events: int
    accept: str = "application/json"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about the API, and the steps that verify it on both engines."""

    name: str
    steps: Sequence[Call | Watch]


class Marks:
    """Placeholders for values that differ between engines; the same value always gets the same mark."""

    def __init__(self, namespace: str, origin: str) -> None:
        self._namespace = namespace
        self._origin = origin
        self._seen: dict[str, dict[str, str]] = {}

    def mark(self, kind: str, value: str) -> str:
        seen = self._seen.setdefault(kind, {})
        return seen.setdefault(value, f"<{kind}-{len(seen) + 1}>")

    def text(self, value: str) -> str:
        value = value.replace(self._namespace, "<ns>").replace(self._origin, "<server>")
        value = FINGERPRINT.sub("<fingerprint>", TOKEN.sub("<token>", value))
        value = UUID.sub(lambda match: self.mark("uid", match[0]), value)
        value = CURRENT.sub("<revision>", GENERATED.sub("<suffix>", SELF_TYPE.sub("<time>", value)))
        return TIME.sub("<time>", SENT.sub("<size>", value))

    def body(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, dict):
            return {self.text(key): self._field(key, item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.body(item, path) for item in value]
        if isinstance(value, str):
            return "<age>" if path[-2:] == ("rows", "cells") and AGE.match(value) else self.text(value)
        return value

    def _field(self, key: str, value: Any, path: tuple[str, ...]) -> Any:
        if key == "resourceVersion" and isinstance(value, str) and value:
            # A list's revision is the store's, which other writers change; an object's own is comparable.
            return (
                "<revision>"
                if path == ("metadata", "resourceVersion") and self._list
                else self.mark("rv", value)
            )
        if key == "continue" and value:
            return "<continue>"
        if key == "managedFields" and isinstance(value, list):
            # They are sorted by time in whole seconds, and which of two writes crosses a second is random.
            entries = [self.body(entry, path) for entry in value]
            return sorted(entries, key=lambda entry: [str(entry.get(each, "")) for each in MANAGER])
        if key == "serverAddress":
            return "<address>"
        if key in ("clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "pod-template-hash"):
            return f"<{key}>" if value not in (None, "", "None", ["None"]) else value
        return self.body(value, path)

    def event(self, value: Any) -> Any:
        """Mask a watch event; a bookmark's revision is the store's, which other writers change."""
        masked = self.body(value)
        if value.get("type") == "BOOKMARK":
            masked["object"]["metadata"]["resourceVersion"] = "<revision>"
        return masked

    _list = False

    def document(self, value: Any) -> Any:
        kind = value.get("kind", "") if isinstance(value, dict) else ""
        self._list = kind.endswith("List") or kind == "Table"
        masked = self.body(value)
        if kind == "APIResourceList":
            # The real server lists custom resources in Go's random map order.
            masked["resources"].sort(key=lambda resource: resource["name"])
        if kind == "SelfSubjectRulesReview":
            # The real server lists bindings in Go's random map order.
            for rules in masked["status"].values():
                if isinstance(rules, list):
                    rules.sort(key=json.dumps)
        return _with_ordered_causes(masked) if kind == "Status" else masked


class Engine:
    """A client for one engine under test. It carries values from one step of a case to the next."""

    def __init__(
        self,
        name: str,
        url: str,
        session: aiohttp.ClientSession,
        anonymous: aiohttp.ClientSession,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self._session = session
        self._anonymous = anonymous
        self._tls = tls

    async def status_of(self, sent: bytes) -> int:
        """Send these bytes as they are and return the status of the response."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=self._tls)
        try:
            writer.write(sent)
            async with asyncio.timeout(30):
                version, status, *_ = (await reader.readline()).split(b" ")
        finally:
            writer.transport.abort()
        assert version.startswith(b"HTTP/1."), version
        return int(status)

    async def play(self, case: Case, namespace: str) -> list[Any]:
        """Send the case's steps and return the masked responses."""
        marks = Marks(namespace, self.url)
        held: dict[str, str] = {"ns": namespace}
        outcomes: list[Any] = []
        for step in case.steps:
            if isinstance(step, Watch):
                outcomes.append(await self._watch(step, held, marks))
            else:
                outcomes.append(await self._call(step, held, marks))
        return outcomes

    async def _call(self, call: Call, held: dict[str, str], marks: Marks) -> Any:
        if call.delay:
            await asyncio.sleep(call.delay)
        for _ in range(200):
            status, headers, document = await self._request(call, held)
            # On the real engine, a new kind has no path, or is busy, for a moment.
            no_path = status == 404 and isinstance(document, str)
            busy = call.until and (no_path or status == 429)
            if not busy and (
                status not in (200, 201) or call.until in json.dumps(document, separators=(",", ":"))
            ):
                break
            await asyncio.sleep(0.05)
        _hold(document, held)
        body = marks.document(document) if not isinstance(document, str) else marks.text(document)
        return {"status": status, "headers": headers, "body": body}

    async def _request(self, call: Call, held: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
        session = self._anonymous if call.anonymous else self._session
        async with session.request(
            call.method,
            self._url(call, held),
            data=_payload(call, held),
            headers=_headers(call, held),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=30),
        ) as response:
            raw = await response.read()
            headers = {
                name: text
                for name in HEADERS_THAT_MATTER
                if (text := UNENFORCED.sub("", "\n".join(response.headers.getall(name, ()))))
            }
            return response.status, headers, _parse(raw, response.content_type)

    async def _watch(self, watch: Watch, held: dict[str, str], marks: Marks) -> Any:
        opened = Call(method="GET", path=watch.path, query=watch.query, accept=watch.accept)
        events: list[Any] = []
        async with self._session.get(
            self._url(opened, held), headers=_headers(opened, held), timeout=aiohttp.ClientTimeout(total=30)
        ) as response:
            if response.status != 200:
                return {
                    "status": response.status,
                    "body": marks.document(_parse(await response.read(), response.content_type)),
                }
            during = [await self._call(call, held, marks) for call in watch.during]
            buffer = b""
            try:
                async with asyncio.timeout(10):
                    async for chunk in response.content.iter_any():
                        *lines, buffer = (buffer + chunk).split(b"\n")
                        events += [marks.event(json.loads(line)) for line in lines if line]
                        if len(events) >= watch.events:
                            break
                    else:
                        events.append("<end>")
            except TimeoutError:
                events.append("<nothing more>")
        return {"status": 200, "during": during, "events": _without_idle_bookmarks(events)}

    def _url(self, call: Call, held: Mapping[str, str]) -> str:
        query = _fill(call.query, held)
        return self.url + _fill(call.path, held) + (f"?{query}" if query else "")


def _with_ordered_causes(status: dict[str, Any]) -> dict[str, Any]:
    """Sort the causes: the real server visits properties and managers in Go's random map order."""
    causes = (status.get("details") or {}).get("causes") or []
    lines = [f"{cause.get('field')}: {cause.get('message')}" for cause in causes]
    ordered = sorted(causes, key=lambda cause: (cause.get("field", ""), cause.get("message", "")))
    message = status.get("message", "").replace(f"[{', '.join(lines)}]", f"[{', '.join(sorted(lines))}]")
    return (
        {**status, "message": message, "details": {**status["details"], "causes": ordered}}
        if causes
        else status
    )


def _without_idle_bookmarks(events: list[Any]) -> list[Any]:
    """Drop periodic bookmarks, which come at any time; only that after the initial events is guaranteed."""
    return [
        event
        for event in events
        if not isinstance(event, dict)
        or event.get("type") != "BOOKMARK"
        or "annotations" in event["object"].get("metadata", {})
    ]


def _fill(text: str, held: Mapping[str, str]) -> str:
    for key, value in held.items():
        text = text.replace("{" + key + "}", value)
    return text


def _payload(call: Call, held: Mapping[str, str]) -> BytesIO | None:
    if call.body is None:
        return None
    if isinstance(call.body, bytes):
        return BytesIO(call.body)
    text = call.body if isinstance(call.body, str) else json.dumps(call.body)
    return BytesIO(_fill(text, held).encode())


def _headers(call: Call, held: Mapping[str, str]) -> list[tuple[str, str]]:
    headers = {"Accept": call.accept, "User-Agent": "conformance/1", **call.headers}
    if call.body is not None and call.content_type:
        headers["Content-Type"] = call.content_type
    return [(name, value) for name, values in headers.items() for value in _fill(values, held).split("\n")]


def _parse(raw: bytes, content_type: str) -> Any:
    if content_type.endswith("yaml"):
        return yaml.safe_load(raw)
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")


def _hold(document: Any, held: dict[str, str]) -> None:
    """Keep the values that later steps may refer to: {rv}, {uid}, {name}, {continue} and {token} of the last response."""
    if isinstance(document, dict) and document.get("kind") == "TokenRequest":
        held["token"] = document["status"]["token"]
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return
    for key, name in (("resourceVersion", "rv"), ("uid", "uid"), ("name", "name"), ("continue", "continue")):
        if metadata.get(key):
            held[name] = metadata[key]
