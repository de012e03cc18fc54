"""The metrics of both engines: the embedded one serves some families of the real one, with the same types and labels."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.behaviour.conformance.cases.requests import CONFIGMAPS, case, configmap, get, merge, post
from tests.behaviour.conformance.pair import Pair

pytestmark = pytest.mark.real
REQUESTS = (
    "apiserver_request",  # without the suffix of counters, as the parser names it
    "apiserver_request_duration_seconds",
)


def families(pair: Pair) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the families of the embedded and of the real engine after the same requests."""
    steps = [
        post(CONFIGMAPS, configmap()),
        post(CONFIGMAPS, configmap()),
        merge(f"{CONFIGMAPS}/one", {"data": {"a": "b"}}),
        get(CONFIGMAPS),
        get("/metrics", accept="*/*"),
    ]
    embedded, real = pair.compare(case("metrics", *steps))
    assert embedded[-1]["status"] == real[-1]["status"] == 200
    parsed = [
        {family.name: family for family in text_string_to_metric_families(answer[-1]["body"])}
        for answer in (embedded, real)
    ]
    return parsed[0], parsed[1]


def test_each_family_exists_on_the_real_engine_with_the_same_type(pair: Pair) -> None:
    embedded, real = families(pair)
    assert {name: family.type for name, family in embedded.items()} == {
        name: real[name].type for name in embedded
    }


def test_requests_have_the_same_labels(pair: Pair) -> None:
    """The real engine does not count what its filters reject, such as 403 and 406; other cases cause those."""
    embedded, real = families(pair)
    for name in REQUESTS:
        ours, theirs = (
            {
                (sample.name, *sorted(sample.labels.items()))
                for sample in engine[name].samples
                if sample.labels.get("resource") == "configmaps"
                and sample.labels["verb"] in ("POST", "PATCH")
                and sample.labels.get("code", "200") in ("200", "201", "409")
            }
            for engine in (embedded, real)
        )
        assert ours
        assert ours <= theirs
