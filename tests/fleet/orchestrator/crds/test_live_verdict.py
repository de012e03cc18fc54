"""Live verdicts: the resources of a cluster against the schema that it would get."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kapsa.fleet.domain.rollout.plans import RejectedShare
from kapsa.fleet.orchestrator.crds.live_verdict import judge_resources, verdict_line
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.runtime.testing import Sample
from tests.fleet.domain.crds.resources import Raw, crd, object_of, resource, version

LIMITED = crd(
    version(
        "v1",
        resource(
            object_of(
                {
                    "size": {"type": "integer", "maximum": 9},
                    "secret": {"type": "string", "format": "ipv4"},
                    "name": {"type": "string", "maxLength": 20},
                },
                **{
                    "x-kubernetes-validations": [
                        {"rule": "!has(self.size) || self.size != 7", "message": "not seven"}
                    ]
                },
            )
        ),
    )
)


def widget(number: int, **spec: Any) -> Raw:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": f"w{number}", "namespace": "shop", "managedFields": [{"manager": "m"}]},
        "spec": spec,
    }


async def pages(*resources: Raw, size: int = 2) -> AsyncIterator[list[Raw]]:
    for start in range(0, len(resources), size):
        yield list(resources[start : start + size])


async def test_resources_that_the_new_schema_rejects_are_counted_and_named() -> None:
    verdict = await judge_resources(LIMITED, pages(widget(1, size=3), widget(2, size=10), widget(3, size=7)))
    assert (verdict.checked, verdict.rejected) == (3, 2)
    assert verdict.examples == (
        "shop/w2: spec.size: spec.size in body should be less than or equal to 9",
        "shop/w3: spec: not seven",
    )
    assert verdict.share is RejectedShare.SOME
    assert verdict_line(verdict, "prod-eu") == "2 of 3 in prod-eu would be rejected"


async def test_resources_that_would_lose_fields_are_counted_apart() -> None:
    verdict = await judge_resources(LIMITED, pages(widget(1, size=3, color="red")))
    assert (verdict.rejected, verdict.pruned) == (0, 1)
    assert verdict.examples == ('shop/w1: field "spec.color" would be pruned',)
    assert verdict_line(verdict, "dev") == "0 of 1 in dev would be rejected; 1 would lose fields"


async def test_no_reason_contains_a_value() -> None:
    verdict = await judge_resources(
        LIMITED, pages(widget(1, secret="hunter2"), widget(2, name="hunter2" * 9))
    )
    assert verdict.rejected == 2
    assert "hunter2" not in str(verdict)


async def test_a_resource_of_a_version_that_is_gone_is_judged_by_the_stored_one() -> None:
    old = {**widget(1, size=10), "apiVersion": "example.com/v1beta1"}
    assert (await judge_resources(LIMITED, pages(old))).rejected == 1


async def test_a_resource_that_a_webhook_would_convert_is_not_judged() -> None:
    converted = {**LIMITED, "spec": {**LIMITED["spec"], "conversion": {"strategy": "Webhook"}}}
    old = {**widget(1, size=10), "apiVersion": "example.com/v1beta1"}
    verdict = await judge_resources(converted, pages(old))
    assert (verdict.checked, verdict.rejected, verdict.share) == (0, 0, RejectedShare.UNKNOWN)
    assert "converted by a webhook" in verdict.partial_reason


async def test_a_verdict_is_partial_if_the_cluster_goes_away() -> None:
    async def broken() -> AsyncIterator[list[Raw]]:
        yield [widget(1, size=10)]
        raise ResourcesUnreadable("the cluster does not answer")

    verdict = await judge_resources(LIMITED, broken())
    assert (verdict.checked, verdict.rejected) == (1, 1)
    assert verdict.partial_reason == "the cluster does not answer"


async def test_a_verdict_ends_when_its_time_is_over() -> None:
    verdict = await judge_resources(LIMITED, pages(widget(1), widget(2)), most_seconds=0)
    assert verdict.checked == 0
    assert verdict.partial_reason.startswith("stopped after 0 s")


@pytest.mark.long
async def test_ten_thousand_resources_are_judged_page_by_page(
    sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    count = 2_000 if sample else 10_000

    async def many() -> AsyncIterator[list[Raw]]:
        for start in range(0, count, 500):
            yield [
                widget(number, size=10 if number % 100 == 0 else 1, name="n" * 15)
                for number in range(start, start + 500)
            ]

    gc.collect()
    tracemalloc.start()
    verdict = await judge_resources(LIMITED, many())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    record_property(
        "sweep", f"live verdict: {verdict.rejected} of {verdict.checked}, {peak / 1e6:.1f} MB at most"
    )
    assert (verdict.checked, verdict.rejected, len(verdict.examples)) == (count, count // 100, 5)
    assert peak < 8_000_000
