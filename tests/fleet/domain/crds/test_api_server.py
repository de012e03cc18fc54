"""The comparison against a whole API server: what ratcheting softens, and that safe pairs are safe."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.crds import ChangeSeverity, compare_schemas, parse_schema, worst
from kapsa.runtime import Client, Invalid
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.pruning import prune
from kapsa.schemas.schema import Schema
from tests.eventually import eventually
from tests.fleet.domain.crds.generator import Pairs, Raw
from tests.fleet.domain.crds.resources import compare, crd, object_of, resource, version
from tests.fleet.domain.crds.test_safety import is_structural
from tests.fleet.served_kinds import accepted, served

DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
STRING = {"type": "string"}
SHORT = {"type": "string", "maxLength": 3}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ITEMS = {"type": "array", "items": STRING, "maxItems": 9}
PAIRS_PER_KIND = 20
KINDS = 25
OBJECTS = 5


def keyed(value: Raw) -> Raw:
    return {
        "type": "array",
        "maxItems": 9,
        "items": object_of({"k": SHORT, "v": value}, required=["k"]),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }


def ruled(schema: Raw, rule: str) -> Raw:
    return {**schema, "x-kubernetes-validations": [{"rule": rule}]}


PAIR = {"a": {**STRING, "maxLength": 9}, "b": {**STRING, "maxLength": 9}}

RATCHETED: list[tuple[str, Raw, Raw, Any, Any, bool]] = [
    ("scalar", object_of(PAIR), object_of({**PAIR, "a": SHORT}), {"a": "long"}, {"b": "x"}, True),
    (
        "pattern",
        object_of(PAIR),
        object_of({**PAIR, "a": {**STRING, "pattern": "^x"}}),
        {"a": "y"},
        {"b": "x"},
        True,
    ),
    (
        "enum",
        object_of(PAIR),
        object_of({**PAIR, "a": {**STRING, "enum": ["x"]}}),
        {"a": "y"},
        {"b": "x"},
        True,
    ),
    (
        "scalarrule",
        object_of(PAIR),
        object_of({**PAIR, "a": ruled(PAIR["a"], "self == 'x'")}),
        {"a": "y"},
        {"b": "x"},
        True,
    ),
    (
        "scalarbranch",
        object_of(PAIR),
        object_of({**PAIR, "a": {**STRING, "anyOf": [{"maxLength": 1}]}}),
        {"a": "yy"},
        {"b": "x"},
        True,
    ),
    (
        "mapvalue",
        {"type": "object", "additionalProperties": STRING},
        {"type": "object", "additionalProperties": SHORT},
        {"a": "long"},
        {"b": "x"},
        True,
    ),
    (
        "keyedentry",
        keyed(STRING),
        keyed(SHORT),
        [{"k": "a", "v": "long"}],
        [{"k": "a", "v": "long"}, {"k": "b", "v": "x"}],
        True,
    ),
    ("listentry", ITEMS, {**ITEMS, "items": SHORT}, ["long"], ["long", "x"], False),
    (
        "setentry",
        {**ITEMS, "x-kubernetes-list-type": "set"},
        {**ITEMS, "items": SHORT, "x-kubernetes-list-type": "set"},
        ["long"],
        ["long", "x"],
        False,
    ),
    ("required", object_of(PAIR), object_of(PAIR, required=["a"]), {"b": "y"}, {"b": "x"}, False),
    ("items", ITEMS, {**ITEMS, "maxItems": 1}, ["a", "b"], ["a", "c"], False),
    (
        "properties",
        object_of(PAIR),
        object_of(PAIR, maxProperties=1),
        {"a": "x", "b": "y"},
        {"b": "z"},
        False,
    ),
    ("objectrule", object_of(PAIR), ruled(object_of(PAIR), "has(self.a)"), {"b": "y"}, {"b": "x"}, False),
    (
        "objectbranch",
        object_of(PAIR),
        object_of(PAIR, oneOf=[{"required": ["a"]}]),
        {"b": "y"},
        {"b": "x"},
        False,
    ),
    ("embedded", OPEN, {**OPEN, "x-kubernetes-embedded-resource": True}, {"a": "x"}, {"b": "x"}, False),
]
"""Name, old and new schema, a stored value that the new one rejects, an edit next to what is wrong, accepted."""


def changes(index: int) -> tuple[Raw, Raw]:
    """Return the schemas of the resource, of which only one case has changed."""
    old = {name: before for name, before, *_ in RATCHETED}
    name, _, after, *_ = RATCHETED[index]
    return resource(object_of(old)), resource(object_of({**old, name: after}))


def ratchet_crd(schema: Raw) -> Raw:
    definition = crd(
        version("v1", schema),
        names={"plural": "ratchets", "kind": "Ratchet", "singular": "ratchet", "listKind": "RatchetList"},
    )
    return {**definition, "metadata": {"name": "ratchets.example.com"}}


@pytest.mark.parametrize("index", range(len(RATCHETED)), ids=[case[0] for case in RATCHETED])
def test_a_finding_says_whether_ratcheting_softens_it(index: int) -> None:
    findings = [
        finding for finding in compare(*changes(index)) if finding.severity is ChangeSeverity.BREAKING
    ]
    assert [finding.ratchets for finding in findings] == [RATCHETED[index][-1]]


async def test_the_api_server_accepts_exactly_the_edits_that_a_finding_calls_ratcheted(
    cluster: DevCluster,
) -> None:
    kind = "example.com/v1/Ratchet"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create(ratchet_crd(resource(object_of({name: old for name, old, *_ in RATCHETED}))))
        await eventually(lambda: served(client, kind), bool, "the kind to be served")
        for name, _, _, stored, *_ in RATCHETED:
            await client.create(
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Ratchet",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {name: stored},
                }
            )
        after = ratchet_crd(resource(object_of({name: new for name, _, new, *_ in RATCHETED})))
        await client.patch(DEFINITIONS, "ratchets.example.com", {"spec": after["spec"]})
        probe = {
            "apiVersion": "example.com/v1",
            "kind": "Ratchet",
            "metadata": {"name": "probe", "namespace": "default"},
            "spec": {"scalar": {"a": "long"}},
        }
        await eventually(
            lambda: accepted(client.create(probe, dry_run=True)),
            lambda passed: not passed,
            "the new schema to be used",
        )
        edits = {
            name: await accepted(
                client.patch(kind, name, {"spec": {name: edit}}, namespace="default", dry_run=True)
            )
            for name, _, _, _, edit, _ in RATCHETED
        }
        labels = {
            name: await accepted(
                client.patch(
                    kind, name, {"metadata": {"labels": {"a": "b"}}}, namespace="default", dry_run=True
                )
            )
            for name, *_ in RATCHETED
        }
        again = {
            name: await accepted(
                client.create(
                    {
                        "apiVersion": "example.com/v1",
                        "kind": "Ratchet",
                        "metadata": {"name": f"{name}-2", "namespace": "default"},
                        "spec": {name: stored},
                    },
                    dry_run=True,
                )
            )
            for name, _, _, stored, *_ in RATCHETED
        }
    assert edits == {name: softened for name, *_, softened in RATCHETED}
    assert [name for name, passed in labels.items() if not passed] == ["embedded"]
    assert not any(again.values())  # nothing softens the creation of the same object elsewhere


@pytest.mark.real
@pytest.mark.timeout(900)
async def test_no_object_breaks_a_pair_that_is_called_safe_on_the_api_server(
    real_cluster: DevCluster, record_property: pytest.RecordProperty
) -> None:
    objects = 0
    async with Client.connect(kubeconfig=real_cluster.kubeconfig) as client:
        pairs = safe_pairs(Random(16))
        for number in range(KINDS):
            batch = [next(pairs) for _ in range(PAIRS_PER_KIND)]
            objects += await check_batch(client, number, batch)
    record_property(
        "sweep",
        f"CRD pairs on the API server: {KINDS * PAIRS_PER_KIND} called safe, {objects} objects accepted",
    )
    assert objects > KINDS * PAIRS_PER_KIND


def safe_pairs(random: Random) -> Any:
    """Yield pairs that the comparison calls safe, with objects for each."""
    while True:
        source = Pairs(random)
        one, other = source.pair()
        if one == other or not is_structural(one) or not is_structural(other):
            continue
        for old, new in ((one, other), (other, one)):
            if worst(compare_schemas(parse_schema(old), parse_schema(new))) is ChangeSeverity.SAFE:
                yield old, new, list(source.objects(old, new, OBJECTS))
                break


async def check_batch(client: Client, number: int, batch: list[tuple[Raw, Raw, list[Raw]]]) -> int:
    """Serve each pair as two versions of one kind; what the first accepts, the second must accept unchanged."""
    kind = f"Pair{number}"
    plural = f"pair{number}s"
    group = f"g{number}.example.com"  # the client reads what a group serves once
    # The server fills in the defaults of the stored version, whichever version a request uses: so that has none.
    versions = [version("v1alpha1", OPEN)]
    for index, (old, new, _) in enumerate(batch):
        versions.append(version(f"v{2 * index + 1}", old, storage=False))
        versions.append(version(f"v{2 * index + 2}", new, storage=False))
    definition = crd(
        *versions,
        group=group,
        names={"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
    )
    await client.create({**definition, "metadata": {"name": f"{plural}.{group}"}})
    await eventually(
        lambda: served(client, f"{group}/v{2 * len(batch)}/{kind}"), bool, "the kind to be served"
    )
    checked = 0
    for index, (old, new, objects) in enumerate(batch):
        schema = Schema.from_crd(old)
        for obj in objects:
            stored = apply_defaults(schema, prune(schema, copy.deepcopy(obj)))
            body = {**stored, "kind": kind, "metadata": {"name": "w", "namespace": "default"}}
            try:
                before = await client.create(
                    {**body, "apiVersion": f"{group}/v{2 * index + 1}"}, dry_run=True
                )
            except Invalid:
                continue
            try:
                after = await client.create({**body, "apiVersion": f"{group}/v{2 * index + 2}"}, dry_run=True)
            except Invalid as error:
                pytest.fail(f"{old} accepts {stored}, {new} does not: {error}")
            assert after.get("spec") == before.get("spec"), (old, new, obj)
            checked += 1
    await client.delete(DEFINITIONS, f"{plural}.{group}")
    return checked
