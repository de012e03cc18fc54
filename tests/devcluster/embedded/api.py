"""A client without sockets, for the tests of the embedded server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec

from kapsa.devcluster import Reply, Request
from kapsa.devcluster.embedded.server import Server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

Object = dict[str, Any]

WIDGET_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "color": {"type": "string"},
                                },
                            },
                            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                        },
                    }
                },
            }
        ],
    },
}


class Answer(msgspec.Struct):
    """A decoded reply."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def meta(self) -> Object:
        metadata: Object = self.body["metadata"]
        return metadata

    @property
    def revision(self) -> int:
        return int(self.meta["resourceVersion"])

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Api:
    """A client that passes requests directly to a server."""

    def __init__(self, server: Server, client: str = "") -> None:
        self.server = server
        self.client = client

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        reply = await self.open(method, path, body, content_type=content_type, headers=headers, **query)
        assert isinstance(reply.body, bytes)
        text = reply.headers.get("content-type", "")
        decoded: Any = reply.body
        if text.startswith("application/json") and reply.body:
            decoded = json.loads(reply.body)
        return Answer(reply.status, reply.headers, decoded)

    async def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        encoded = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await self.server.handle(
            Request(
                method=method,
                path=path,
                query=urlencode(query, doseq=True),
                headers={"content-type": content_type, "user-agent": "test/1", **(headers or {})},
                body=encoded,
                client=self.client,
            )
        )

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        if path == PODS and not self.server.backend.creates_accounts:
            # Without controllers nobody creates the account that admission requires of a pod.
            account = {"metadata": {"name": "default"}}
            await self.send("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.send("PUT", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.send("PATCH", path, body, content_type=MERGE, **query)

    async def apply(self, path: str, body: Any, manager: str = "tester", **query: Any) -> Answer:
        return await self.send("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.send("DELETE", path, body, **query)

    async def configmap(self, name: str, labels: dict[str, str] | None = None, **data: str) -> Answer:
        """Create a ConfigMap, the simplest kind of object."""
        answer = await self.post(CONFIGMAPS, configmap(name, labels, **data))
        assert answer.status == 201, answer.body
        return answer

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[WatchStream]:
        """Open a watch and close it at the end."""
        reply = await self.open("GET", path, watch="1", **query)
        assert not isinstance(reply.body, bytes), reply.body
        watching = WatchStream(reply)
        try:
            yield watching
        finally:
            await watching.close()


class WatchStream:
    """The events of a watch, one at a time."""

    def __init__(self, reply: Reply) -> None:
        assert not isinstance(reply.body, bytes)
        self.status = reply.status
        self._frames = reply.body
        self._pending: list[Object] = []

    async def next(self) -> Object | None:
        """Return the next event, None at the end of the stream."""
        while not self._pending:
            try:
                frames = await anext(self._frames)
            except StopAsyncIteration:
                return None
            self._pending = [json.loads(line) for line in frames.splitlines()]
        return self._pending.pop(0)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return the types and names of the next events."""
        events = []
        for _ in range(count):
            event = await self.next()
            assert event is not None, f"the watch ended after {events}"
            events.append((event["type"], event["object"].get("metadata", {}).get("name", "")))
        return events

    async def close(self) -> None:
        closing = getattr(self._frames, "aclose", None)
        if closing is not None:
            await closing()


def configmap(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
