"""The time that a comparison takes."""

from __future__ import annotations

import time
from random import Random

import msgspec
import pytest

from kapsa.fleet.domain.crds import compare_crds, parse_crd
from tests.fleet.domain.crds.resources import Raw, crd, object_of, resource, version

BUDGET = 0.050


def large_schema(random: Random, depth: int = 6) -> Raw:
    """Return a schema in the manner of one with pod templates: deep, with prose at every field."""
    if depth == 0:
        return {
            "type": "string",
            "maxLength": random.randint(10, 99),
            "description": "what the field is for " * 6,
        }
    fields = {f"field{index}": large_schema(random, depth - 1) for index in range(4)}
    node = object_of(fields, description="a part of the template " * 3, required=["field0"])
    return {"type": "array", "items": node} if depth % 2 else node


def changed(schema: Raw, random: Random, share: float) -> Raw:
    """Return a copy in which a share of the leaves are tighter, and every description differs."""
    copied = {key: value for key, value in schema.items() if key not in ("properties", "items")}
    copied["description"] = "other words"
    if "properties" in schema:
        copied["properties"] = {
            name: changed(field, random, share) for name, field in schema["properties"].items()
        }
    elif "items" in schema:
        copied["items"] = changed(schema["items"], random, share)
    elif random.random() < share:
        copied["maxLength"] = 5
    return copied


def test_a_schema_of_one_megabyte_compares_in_under_50_ms(record_property: pytest.RecordProperty) -> None:
    random = Random(1)
    schema = large_schema(random)
    size = len(msgspec.json.encode(schema))
    assert size > 1_000_000
    old = parse_crd(crd(version("v1", resource(schema))))
    new = parse_crd(crd(version("v1", resource(changed(schema, random, 0.05)))))
    times = []
    for _ in range(100):
        started = time.thread_time()  # other processes of a busy machine do not count
        result = compare_crds(old, new)
        times.append(time.thread_time() - started)
    times.sort()
    record_property(
        "sweep",
        f"CRD comparison: {size / 1e6:.1f} MB, {len(result.findings)} findings, both ways: "
        f"median {times[50] * 1e3:.1f} ms, p99 {times[98] * 1e3:.1f} ms",
    )
    assert len(result.findings) > 150
    assert times[98] < BUDGET
