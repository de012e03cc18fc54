"""Faults: after crashes, missed events and stale reads, the examples end in the same state."""

import importlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from kapsa.runtime import Operator
from kapsa.runtime.testing import (
    Harness,
    Sample,
    Scenario,
    crash_at_every_write,
    miss_every_step,
    restart_in_every_past,
)

pytestmark = pytest.mark.virtual_time
CLAIMS = {"sourceClaim": "data", "targetClaim": "archives"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def manifest_of(api_version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def scenario(
    example: str,
    *specs: dict[str, Any],
    dependencies: Sequence[dict[str, Any]] = (),
    claims: Iterable[str] = (),
) -> Scenario:
    """Create a resource, change it, delete it. Its pods wait for the claims, so these exist before."""
    module = importlib.import_module(f"examples.{example}.{example}")
    (kind,) = module.operator.resources
    manifest = partial(manifest_of, kind.api_version, kind.kind)

    async def prepare(harness: Harness) -> None:
        await harness.install(kind)
        for number, spec in enumerate(dependencies):
            await harness.apply(manifest(f"dependency-{number}", spec))
        for claim in claims:
            await harness.apply(manifest_of("v1", "PersistentVolumeClaim", claim, CLAIM))
        await harness.apply(manifest("one", specs[0]))

    def change_to(spec: dict[str, Any]) -> Any:
        return lambda harness: harness.apply(manifest("one", spec))

    async def delete(harness: Harness) -> None:
        await harness.client.delete(kind, "one", namespace="default")

    return Scenario(
        # Without a lease: waiting for it to run out would be most of the time, and its writes are not the example's.
        operator=lambda: Operator(controllers=module.operator.controllers),
        prepare=prepare,
        steps=[*map(change_to, specs[1:]), delete],
        ignore=["pods"],  # each has its own identity, by its container
    )


SCENARIOS = {
    "myapp": scenario("myapp", {"image": "nginx:1"}, {"image": "nginx:2", "replicas": 2}),
    "database": scenario(
        "database",
        {"passwordSecret": "s", "backup": {"storage": "1Gi"}, "onDelete": "Delete"},
        {"passwordSecret": "s", "onDelete": "Delete"},
    ),
    "application": scenario(
        "application",
        {
            "image": "a:1",
            "dependencies": [{"name": "dependency-0"}, {"name": "dependency-1"}],
            "ingress": {"host": "a.example.com"},
        },
        {"image": "a:2"},
        dependencies=[{"image": "d:1"}, {"image": "e:1"}],
    ),
    "backup": scenario(
        "backup",
        {**CLAIMS, "retention": 1},
        {**CLAIMS, "retention": 1, "image": "busybox:1.36"},
        claims=CLAIMS.values(),
    ),
}


LEAST_POINTS = {"myapp": 21, "database": 45, "application": 39, "backup": 21}
"""Points of a complete sweep. Fewer mean that a scenario no longer does what it did."""


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_crash_at_any_write_does_not_change_the_final_state(
    name: str, sample: Sample | None, record_property: Any
) -> None:
    report = await crash_at_every_write(SCENARIOS[name], sample=sample)
    record_property("sweep", f"{name}: {report}")
    assert not report.failures, str(report)
    assert report.total >= LEAST_POINTS[name]


@pytest.mark.parametrize("sweep", [miss_every_step, restart_in_every_past])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_missed_and_late_events_do_not_change_the_final_state(
    name: str, sweep: Any, sample: Sample | None
) -> None:
    report = await sweep(SCENARIOS[name], sample=sample)
    assert not report.failures, str(report)
    assert report.points >= 3
