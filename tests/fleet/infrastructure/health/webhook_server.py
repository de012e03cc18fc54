"""A webhook server on loopback with a certificate of its own: it admits, denies, delays, converts, or fails."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kapsa.adapters.testing.loopback_tls import loopback_tls


class WebhookServer:
    """The behaviour of the server, and the addresses of its webhooks."""

    def __init__(self, authority: str) -> None:
        self.authority = authority
        self.port = 0
        self.delay = 0.0
        self.allowed = True
        self.converts = True
        self.failures = 0
        """The number of conversions that fail before the next one succeeds."""
        self.drops = ""
        """A field of the spec that a conversion to v2 loses."""
        self.renames: dict[str, str] = {}
        """Fields of the spec by their names in v1: the names that they have in v2."""
        self.calls = 0

    def client_config(self, path: str, authority: str | None = None) -> dict[str, Any]:
        bundle = base64.b64encode((authority or self.authority).encode()).decode()
        return {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": bundle}

    def configuration(self, *, authority: str | None = None, **fields: Any) -> dict[str, Any]:
        """Return a validating webhook for the resources of the operator."""
        operations = fields.pop("operations", ["CREATE", "UPDATE"])
        rule = {
            "apiGroups": ["example.com"],
            "apiVersions": ["*"],
            "resources": ["widgets"],
            "operations": operations,
        }
        webhook = {
            "name": "widgets.example.com",
            "clientConfig": self.client_config("validate", authority),
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
            **fields,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "widget-operator"},
            "webhooks": [webhook],
        }

    def conversion(self) -> dict[str, Any]:
        config = self.client_config("convert")
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        return {"strategy": "Webhook", "webhook": webhook}

    async def validate(self, request: web.Request) -> web.Response:
        self.calls += 1
        review = await request.json()
        await asyncio.sleep(self.delay)
        answer = {"uid": review["request"]["uid"], "allowed": self.allowed}
        return web.json_response({**review, "request": None, "response": answer})

    async def convert(self, request: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            return web.Response(status=500, text="the converter starts")
        if not self.converts:
            return web.Response(status=500, text="the converter is broken")
        review = await request.json()
        asked = review["request"]
        objects = [self._converted(each, asked["desiredAPIVersion"]) for each in asked["objects"]]
        answer = {"uid": asked["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
        return web.json_response({**review, "request": None, "response": answer})

    def _converted(self, manifest: dict[str, Any], version: str) -> dict[str, Any]:
        names = self.renames if version.endswith("v2") else {new: old for old, new in self.renames.items()}
        spec = {
            names.get(key, key): value
            for key, value in manifest.get("spec", {}).items()
            if version.endswith("v2") or key != self.drops
        }
        return {**manifest, "apiVersion": version, "spec": spec}


@asynccontextmanager
async def webhook_server() -> AsyncIterator[WebhookServer]:
    """Serve webhooks on loopback."""
    context, authority = loopback_tls("widgets")
    server = WebhookServer(authority)
    application = web.Application()
    application.router.add_post("/validate", server.validate)
    application.router.add_post("/convert", server.convert)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
