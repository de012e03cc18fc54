"""A renderer with a generated value, for tests of what stays when another process renders."""

from __future__ import annotations

import base64
import hashlib

from kapsa.environments.ports import GeneratedValue, Rendered, RenderRequest
from tests.environments.fakes import FakeRenderer, deployment, service

__all__ = ["CHECKSUM", "GENERATED", "GeneratingRenderer"]

CHECKSUM = ("spec", "template", "metadata", "annotations", "checksum/secret")
GENERATED = (
    GeneratedValue("v1/Secret", "database", ("data", "password")),
    GeneratedValue("apps/v1/Deployment", "web", CHECKSUM),
)


class GeneratingRenderer(FakeRenderer):
    """A renderer that generates a password once per commit and process, as `randAlphaNum` in a chart does."""

    process = 0

    def __init__(self, *, with_checksum: bool = True) -> None:
        super().__init__()
        self._with_checksum = with_checksum

    async def render(self, request: RenderRequest) -> Rendered:
        self.requests.append(request)
        generated = f"{self.process}-{request.commit}"
        password = base64.b64encode(generated.encode()).decode()
        plain = base64.b64encode(request.commit.encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "database"},
            "data": {"password": password, "commit": plain},
        }
        workload = deployment("web", f"app:{request.commit}")
        if self._with_checksum:
            checksum = hashlib.sha256(generated.encode()).hexdigest()
            workload["spec"]["template"]["metadata"]["annotations"] = {"checksum/secret": checksum}
        values = GENERATED if self._with_checksum else GENERATED[:1]
        return Rendered((secret, workload, service("web")), generated=values, inputs=request.commit)
