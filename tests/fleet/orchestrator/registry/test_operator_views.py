"""Operators as people see them, at a cost that the author of their values does not choose."""

from __future__ import annotations

import base64
import itertools
import random
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from kapsa.adapters.redaction import Redactor
from kapsa.fleet.domain.registry.operators import ManagedOperator, UploadedChart
from kapsa.fleet.domain.values import MASK, leaf_paths
from kapsa.fleet.orchestrator.registry.operator_views import shown_operator, shown_operators

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def operator(secret_values: Any = (), **layers: Any) -> ManagedOperator:
    fields = {"values": {}, "environment_values": {}, "cluster_values": {}, **layers}
    paths = tuple(sorted(leaf_paths(secret_values))) if secret_values else ()
    return ManagedOperator(
        id=uuid.uuid4(),
        name="widget",
        namespace="widgets",
        source=UploadedChart("widget"),
        created_at=NOW,
        created_by="maria",
        secret_paths=paths,
        **fields,
    )


def test_the_secrets_of_an_operator_are_prepared_once_for_the_layers_of_all_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[Redactor] = []
    prepare = Redactor.__init__

    def count(redactor: Redactor, secrets: Any) -> None:
        prepared.append(redactor)
        prepare(redactor, secrets)

    monkeypatch.setattr(Redactor, "__init__", count)
    secrets = {"token": "secret-of-the-operator"}
    clusters = {f"cluster-{number}": {"size": 1, "note": secrets["token"]} for number in range(20)}
    shown = shown_operator(operator(secrets, cluster_values=clusters), secrets)
    assert shown.cluster_values == {name: {"size": 1, "note": MASK} for name in clusters}
    assert len(prepared) == 1


def test_values_that_would_take_long_to_compare_are_all_hidden() -> None:
    noise = base64.b64encode(random.Random(1).randbytes(450_000)).decode()
    secrets = {f"key-{number}": f"secret-{number:06}" for number in range(900)}
    values = {f"part-{number}": noise[number * 600 : (number + 1) * 600] for number in range(1_000)}
    large = operator(secrets, values=values, environment_values={"Dev": {"size": 1}})
    started = time.process_time()
    shown = shown_operator(large, secrets)
    assert time.process_time() - started < 1
    assert shown.values == {MASK: MASK, **dict.fromkeys(secrets, MASK)}
    assert shown.environment_values == {"Dev": {MASK: MASK}}


def test_a_large_value_without_secrets_is_shown() -> None:
    bundle = "\n".join(["certificate authorities of the company"] * 1_000)
    assert shown_operator(operator(values={"ca": bundle}), {}).values == {"ca": bundle}


async def test_a_list_hides_the_values_for_which_no_time_is_left() -> None:
    ticks = itertools.count(0.0, 0.4)
    listed = [operator(values={"size": number}) for number in range(5)]
    shown = await shown_operators(listed, {}, monotonic=lambda: next(ticks))
    assert [each.values for each in shown] == [
        {"size": 0},
        {"size": 1},
        {"size": 2},
        {MASK: MASK},
        {MASK: MASK},
    ]


async def test_an_operator_is_shown_however_long_the_list_before_it_took() -> None:
    ticks = itertools.count(0.0, 60.0)
    shown = await shown_operators([operator(values={"size": 1})], {}, monotonic=lambda: next(ticks))
    assert [each.values for each in shown] == [{"size": 1}]
    assert await shown_operators([], {}) == []
