"""The examples need the rights they declare: every call has a rule, and every rule a call."""

import importlib
from typing import Any

import pytest

from tests.examples.world import World

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
async def test_every_call_has_a_rule_and_every_rule_a_call(world: World, name: str) -> None:
    operator = importlib.import_module(f"examples.{name}.{name}").operator
    (kind,) = operator.resources
    for claim in ("data", "archives"):
        await world.provide_claim(claim)
    await world.run(operator)
    for generation, spec in enumerate(STORIES[name], start=1):
        await world.apply(kind, "one", **spec)
        await world.observed(kind, "one", generation)
        await world.at_rest()
    await world.client.delete(kind, "one", namespace=world.namespace)
    await world.gone(kind, "one")
    surplus = world.harness.verify_rights(operator)
    assert [each for each in surplus if "events" not in each and "leases" not in each] == []
