"""The examples need exactly the permissions that they declare: each call has a rule, and each rule a call."""

import importlib
from typing import Any

import pytest

from tests.examples.namespaced_harness import NamespacedHarness

CLAIMS = {"sourceClaim": "data", "targetClaim": "archives"}
STORIES: dict[str, list[dict[str, Any]]] = {
    "myapp": [{"image": "nginx:1"}, {"image": "nginx:2", "replicas": 2}],
    "database": [
        {"passwordSecret": "s", "backup": {}, "onDelete": "Delete"},
        {"passwordSecret": "s", "onDelete": "Delete"},
    ],
    "application": [{"image": "a:1", "ingress": {"host": "a.example.com"}}, {"image": "a:1"}],
    "backup": [{**CLAIMS, "retention": 1}, {**CLAIMS, "retention": 1, "image": "busybox:1.36"}],
}


@pytest.mark.parametrize("name", STORIES)
async def test_every_call_has_a_rule_and_every_rule_a_call(harness: NamespacedHarness, name: str) -> None:
    operator = importlib.import_module(f"examples.{name}.{name}").operator
    (kind,) = operator.resources
    for claim in ("data", "archives"):
        await harness.provide_claim(claim)
    await harness.run(operator)
    for generation, spec in enumerate(STORIES[name], start=1):
        await harness.apply(kind, "one", **spec)
        await harness.observed(kind, "one", generation)
        await harness.at_rest()
    await harness.client.delete(kind, "one", namespace=harness.namespace)
    await harness.gone(kind, "one")
    surplus = harness.inner.verify_rights(operator)
    assert [each for each in surplus if "events" not in each and "leases" not in each] == []
