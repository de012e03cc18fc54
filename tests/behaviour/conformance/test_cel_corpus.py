"""Rules of generated custom kinds, each kind and its objects on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kapsa.schemas.crd_schema import validate_schema
from tests.behaviour.conformance.cases import cel_functions
from tests.behaviour.conformance.cases.definitions import definition
from tests.behaviour.conformance.cases.requests import CRDS, MERGE_PATCH, delete, get, patch, post
from tests.behaviour.conformance.cel_corpus import Kind, kind
from tests.behaviour.conformance.exchange import Call, Case
from tests.behaviour.conformance.pair import Pair

KINDS = 231
BATCH = 21
GROUP = "{ns}.kapsa.dev"
DRY_RUN = "dryRun=All"

Step = tuple[str, Call]


def schema_of(one: Kind) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": one.spec}}


def is_accepted(one: Kind) -> bool:
    return not validate_schema(schema_of(one), "schema", status_enabled=False)


def steps_of(numbers: Sequence[int]) -> list[Step]:
    """Create the kinds of a batch, then send their objects, then delete the kinds."""
    kinds = {number: kind(number) for number in numbers}
    served = [number for number, one in kinds.items() if is_accepted(one)]
    steps: list[Step] = []
    for number, one in kinds.items():
        crd = definition(
            f"kinds{number}", f"Kind{number}", group=GROUP, schema={"openAPIV3Schema": schema_of(one)}
        )
        steps.append((f"kind {number}", post(CRDS, crd)))
    steps += [
        (f"kind {number} is served", get(_path(number), until=f"Kind{number}List")) for number in served
    ]
    for number in served:
        steps += _object_steps(number, kinds[number])
    for number in served:
        steps.append((f"kind {number} is deleted", delete(f"{CRDS}/kinds{number}.{GROUP}")))
    return steps


def _path(number: int) -> str:
    return f"/apis/{GROUP}/v1/namespaces/{{ns}}/kinds{number}"


def _object_steps(number: int, one: Kind) -> list[Step]:
    def body(name: str, spec: Any) -> dict[str, Any]:
        meta = {"apiVersion": f"{GROUP}/v1", "kind": f"Kind{number}", "metadata": {"name": name}}
        return {**meta, "spec": spec}

    path = _path(number)
    steps = [(f"kind {number}, object {one.first}", post(path, body("first", one.first)))]
    steps += [
        (f"kind {number}, object {spec}", post(path, body("other", spec), DRY_RUN)) for spec in one.others
    ]
    for spec in one.updates:
        call = patch(f"{path}/first", {"spec": spec}, MERGE_PATCH, DRY_RUN)
        steps.append((f"kind {number}, update of {one.first} to {spec}", call))
    return steps


def reduced(answer: dict[str, Any]) -> Any:
    """Return the parts of a response that do not depend on the order of maps in the real server."""
    body = answer["body"]
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return answer["status"], body.get("spec") if isinstance(body, dict) and answer[
            "status"
        ] < 300 else None
    causes = (body.get("details") or {}).get("causes") or []
    shown = sorted((cause.get("field", ""), cause.get("message", "")) for cause in causes)
    return answer["status"], body.get("reason"), shown


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", range(0, KINDS, BATCH))
def test_both_engines_treat_generated_kinds_with_rules_alike(start: int, pair: Pair) -> None:
    steps = steps_of(range(start, start + BATCH))
    case = Case(name=f"kinds from {start}", steps=[call for _, call in steps])
    embedded, real = pair.compare(case)
    different = [
        f"{label}\n  embedded: {reduced(ours)}\n  real:     {reduced(theirs)}"
        for (label, _), ours, theirs in zip(steps, embedded, real, strict=True)
        if reduced(ours) != reduced(theirs)
    ]
    assert not different, "\n".join(different)


def test_the_corpus_has_kinds_that_are_accepted_and_kinds_that_are_rejected() -> None:
    accepted = sum(is_accepted(kind(number)) for number in range(KINDS))
    assert KINDS >= 200
    assert accepted >= 120
    assert KINDS - accepted >= 30


@pytest.mark.parametrize("name", cel_functions.EXPRESSIONS)
def test_the_rules_of_each_family_of_functions_compile_unless_they_must_not(name: str) -> None:
    schema = cel_functions.schema_of(cel_functions.EXPRESSIONS[name])
    errors = validate_schema(schema, "schema", status_enabled=False)
    if name in cel_functions.REJECTED:
        rejected = {error.field.rpartition(".")[0] for error in errors if "validations[" in error.field}
        assert len(rejected) == len(cel_functions.EXPRESSIONS[name])
    else:
        assert errors == []
