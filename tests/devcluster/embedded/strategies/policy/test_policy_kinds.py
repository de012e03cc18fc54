"""RoleBindings and ResourceQuotas."""

from __future__ import annotations

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer, Object


async def test_the_role_of_a_binding_is_immutable(api: ApiServer) -> None:
    stored = await api.create("rolebindings", "rb", roleRef={"kind": "Role", "name": "a"})
    assert stored["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    stored["roleRef"]["name"] = "b"
    with pytest.raises(StatusError, match="cannot change roleRef"):
        await api.update("rolebindings", stored)


async def test_a_quota_rejects_unknown_resources(api: ApiServer) -> None:
    message = await api.rejection("resourcequotas", "q", spec={"hard": {"nonsense": "1", "pods": "1500m"}})
    assert message == (
        'ResourceQuota "q" is invalid: [spec.hard[nonsense]: Invalid value: "nonsense": '
        "must be a standard resource type or fully qualified, "
        'spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota, '
        'spec.hard[pods]: Invalid value: "1500m": must be an integer]'
    )


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ({"type": "container"}, "must be a standard limit type or fully qualified"),
        ({"type": "Container", "max": {"cpus": "1"}}, "must be a standard resource for containers"),
        (
            {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            "min value 2 is greater than max value 1",
        ),
    ],
)
async def test_a_limit_range_that_limits_nothing_is_rejected(api: ApiServer, limit: Object, problem: str):
    assert problem in await api.rejection("limitranges", "one", spec={"limits": [limit]})


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"scopes": ["BestEfforts"]}, "unsupported scope"),
        ({"scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
            "must be at least one value",
        ),
    ],
)
async def test_a_quota_whose_scopes_match_nothing_is_rejected(api: ApiServer, spec: Object, problem: str):
    assert problem in await api.rejection("resourcequotas", "one", spec={"hard": {"pods": "1"}, **spec})
