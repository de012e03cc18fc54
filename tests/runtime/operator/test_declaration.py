"""The declaration of an operator."""

from __future__ import annotations

import pytest

from kapsa.runtime import (
    CustomResource,
    Operator,
    Spec,
    Status,
    Webhooks,
)
from tests.runtime.sample_app import App, Recorder


class OtherSpec(Spec):
    size: int = 1


class Other(CustomResource[OtherSpec, Status], group="example.com", version="v1"):
    """A second kind."""


class OtherController(Recorder):
    name = "other"
    resource = Other


def test_the_ports_are_those_that_kubernetes_operators_use() -> None:
    operator = Operator(controllers=[Recorder()])
    assert (operator.metrics_port, operator.health_port) == (8080, 8081)
    assert Webhooks(service="webhooks").port == 9443


def test_two_controllers_of_one_name_are_rejected() -> None:
    with pytest.raises(ValueError, match="two controllers are named 'app'"):
        Operator(controllers=[Recorder(), Recorder()])


def test_a_name_that_cannot_be_a_field_manager_is_rejected() -> None:
    with pytest.raises(ValueError, match="invalid operator name 'my operator'"):
        Operator(controllers=[Recorder()], name="my operator")


def test_the_operator_derives_its_resources_and_rights() -> None:
    operator = Operator(
        controllers=[Recorder(), OtherController()], leader_election="lock", namespaces=["shop"]
    )
    assert operator.resources == [App, Other]
    assert operator.name == "lock"
    rights = operator.rights()
    assert (rights.lease, rights.namespaces) == ("lock", ("shop",))
    assert [each.resource.resource for each in rights.controllers] == ["apps", "others"]


def test_equal_and_relative_paths_are_rejected() -> None:
    with pytest.raises(ValueError, match="a path each, got /x, /healthz, /x"):
        Operator(controllers=[Recorder()], metrics_path="/x", readiness_path="/x")
    with pytest.raises(ValueError, match="liveness path must start with '/', got 'live'"):
        Operator(controllers=[Recorder()], liveness_path="live")
