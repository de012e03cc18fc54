"""A pair that is called safe has no counterexample: no object that the old schema accepts breaks the new one."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kapsa.fleet.domain.crds import ChangeSeverity, compare_schemas, parse_schema, worst
from kapsa.runtime.testing import Sample
from kapsa.schemas.crd_schema import validate_schema
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.pruning import prune
from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import validate
from tests.fleet.domain.crds.generator import Pairs, Raw

ALL_PAIRS = 20_000
SAFE_PAIRS = 10_000
"""Pairs of different schemas that are called safe, of all of them."""
SAMPLED_PAIRS = 150
SAMPLED_SAFE_PAIRS = 45
OBJECTS = 8


def breakage(old: Schema, new: Schema, obj: Raw) -> str:
    """Return what the new schema does to an object that the old one accepts; "" for nothing."""
    stored = apply_defaults(old, prune(old, copy.deepcopy(obj)))
    if validate(old, stored) or has_formatted_list(old, stored):
        return ""
    read = apply_defaults(new, prune(new, copy.deepcopy(stored)))
    if read != stored:
        return f"{stored} is read as {read}"
    return "; ".join(map(str, validate(new, read)))


def has_formatted_list(schema: Schema, value: Any) -> bool:
    """Return whether a list is where the schema says string.

    The API server accepts it there if the string has a format, and rejects it if not: to drop a format is safe
    for every object that has the type that its schema says.
    """
    if isinstance(value, list):
        items = schema.items
        return schema.type == "string" or (
            items is not None and any(has_formatted_list(items, each) for each in value)
        )
    if not isinstance(value, dict):
        return False
    fields = ((schema.child(name), each) for name, each in value.items())
    return any(field is not None and has_formatted_list(field, each) for field, each in fields)


def is_structural(schema: Raw) -> bool:
    return not validate_schema(schema, "schema", status_enabled=False)


@pytest.mark.timeout(1200)
def test_no_object_breaks_a_pair_that_is_called_safe(
    sample: Sample | None, record_property: pytest.RecordProperty
) -> None:
    counts = {"pairs": 0, "safe": 0, "objects": 0}

    def check(random: Random) -> None:
        pairs = Pairs(random)
        old, new = pairs.pair()
        if not is_structural(old) or not is_structural(new):
            return
        counts["pairs"] += 1
        for before, after in ((old, new), (new, old)):
            if before == after:
                continue
            findings = compare_schemas(parse_schema(before), parse_schema(after))
            if worst(findings) is not ChangeSeverity.SAFE:
                continue
            counts["safe"] += 1
            schemas = Schema.from_crd(before), Schema.from_crd(after)
            for obj in pairs.objects(before, after, OBJECTS):
                counts["objects"] += 1
                assert not breakage(*schemas, obj), (before, after)

    total = ALL_PAIRS if sample is None else SAMPLED_PAIRS
    run = given(st.randoms(use_true_random=False))(check)
    run = settings(
        max_examples=total,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )(run)
    seed(0 if sample is None else sample.seed)(run)()
    record_property(
        "sweep",
        f"CRD pairs: {counts['pairs']} compared both ways, {counts['safe']} called safe, {counts['objects']} objects",
    )
    assert counts["pairs"] > total * 0.4
    assert counts["safe"] >= (SAFE_PAIRS if sample is None else SAMPLED_SAFE_PAIRS)
