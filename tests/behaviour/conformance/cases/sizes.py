"""Objects near the 1.5 MiB that etcd takes in one request."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    SECRETS,
    WIDGETS,
    case,
    configmap,
    deployment,
    get,
    merge,
    post,
    secret,
    widget,
)

LIMIT = 1_572_864
ONE = f"{WIDGETS}/one"


def padded(size: int) -> dict[str, Any]:
    return widget(spec={"size": 1, "free": {"x": "x" * size}})


def wordy(size: int) -> dict[str, Any]:
    env = [{"name": f"E{number}", "value": "x" * (size // 20)} for number in range(20)]
    return deployment(containers=[{"name": "main", "image": "app:1", "env": env}])


CASES = [
    case("a custom resource of 1.4 MB is stored", post(WIDGETS, padded(1_400_000), "fieldManager=a")),
    case("a custom resource above the limit of etcd is rejected", post(WIDGETS, padded(LIMIT)), get(ONE)),
    case("a custom resource above the limit of etcd's client is rejected", post(WIDGETS, padded(2_500_000))),
    case(
        "a dry run of a custom resource above the limit is answered",
        post(WIDGETS, padded(LIMIT), "dryRun=All"),
    ),
    case(
        "a custom resource that grows beyond the limit is rejected",
        post(WIDGETS, padded(10)),
        merge(ONE, {"spec": {"free": {"x": "x" * 1_700_000}}}),
        merge(ONE, {"spec": {"free": {"x": "x" * 2_500_000}}}),
    ),
    case(
        "a configmap whose JSON is above the limit is stored",
        post(CONFIGMAPS, configmap(data={"a": "\u0001" * 400_000})),
    ),
    case("a deployment above the limit is rejected", post(DEPLOYMENTS, wordy(1_600_000))),
    case("a deployment above the limit of etcd's client is rejected", post(DEPLOYMENTS, wordy(2_500_000))),
    case("a secret of 1 MiB is stored", post(SECRETS, secret(data={"a": "eHh4" * 349_525}))),
]
