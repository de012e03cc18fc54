"""Operators for tests: people, requests, and charts that no helm looks at."""

from __future__ import annotations

import hashlib
from typing import Any

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.operators import ChartFacts, HttpChart
from kapsa.fleet.orchestrator.ports.charts import InspectedChart
from kapsa.fleet.orchestrator.registry.operators import RegisterOperator

EDITOR = Principal("maria", frozenset({Role.OPERATOR}))
VIEWER = Principal("victor", frozenset({Role.VIEWER}))
PASSWORD = "hunter2-very-secret"


class FakeCharts:
    """Charts that no helm looks at: the version is the content."""

    async def fetch(self, source: Any, version: str, login: Any) -> bytes:
        return (version or "1.0.0").encode()

    async def inspect(self, content: bytes, **_: Any) -> InspectedChart:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return InspectedChart(content, digest, content.decode(), ChartFacts(), ())

    async def compare(self, content: bytes, manifest: str, **_: Any) -> tuple[str, ...]:
        return ()


def registration(name: str = "widget", **fields: Any) -> RegisterOperator:
    return RegisterOperator(
        **{
            "name": name,
            "namespace": "widgets",
            "source": HttpChart("https://charts.example.com", "widget"),
            **fields,
        }
    )
