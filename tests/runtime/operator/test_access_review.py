"""The check of the declared rights at start."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock
from kapsa.devcluster.faults import Drop, FaultRule
from kapsa.runtime import (
    Client,
    Grant,
    Operator,
    missing_rules,
    rule_for,
)
from kapsa.runtime.testing import Harness, InProcessTransport
from tests.runtime.sample_app import App, Recorder

pytestmark = pytest.mark.virtual_time


async def test_a_missing_right_is_reported_as_a_rule() -> None:
    def allowed(attributes: Any) -> bool:
        return not (attributes.resource == "configmaps" and attributes.verb in ("create", "patch"))

    clock = VirtualClock()
    async with DevCluster(clock=clock, http=False, policy=allowed) as cluster:
        harness = Harness(cluster, clock=clock)
        await harness.install(App)
        operator = Operator(
            controllers=[Recorder(owns=["v1/ConfigMap"])],
            metrics_port=None,
            health_port=None,
            name="my-operator",
        )
        with capture_logs() as logs:
            run = await operator.start(Client(InProcessTransport(cluster, client="operator"), clock=clock))
            await clock.sleep(5)
        assert [str(rule) for rule in run.missing_rights] == [
            '{apiGroups: [""], resources: ["configmaps"], verbs: ["create", "patch"]} in a ClusterRole'
        ]
        said = [line for line in logs if line["event"].startswith("right missing")]
        assert said[0]["rule"] == str(run.missing_rights[0])
        await run.stop()


async def test_rights_are_checked_once_an_unreachable_server_is_back() -> None:
    clock, faults = VirtualClock(), FaultPlan()
    async with DevCluster(
        clock=clock, http=False, faults=faults, policy=lambda attributes: attributes.verb != "patch"
    ) as cluster:
        faults.add(FaultRule(action=Drop(), client="operator", times=0))
        operator = Operator(controllers=[Recorder()], metrics_port=None, health_port=None)
        run = await operator.start(Client(InProcessTransport(cluster, client="operator"), clock=clock))
        await clock.sleep(120)
        assert run.missing_rights == []
        faults.clear()
        await clock.sleep(60)
        assert any("patch" in rule.verbs for rule in run.missing_rights)
        await run.stop()


async def test_rights_are_checked_in_the_watched_namespaces() -> None:
    clock = VirtualClock()
    async with DevCluster(
        clock=clock, http=False, policy=lambda attributes: attributes.namespace != "shop"
    ) as cluster:
        harness = Harness(cluster, clock=clock)
        await harness.install(App)
        operator = Operator(
            controllers=[Recorder()],
            namespaces=["shop"],
            metrics_port=None,
            health_port=None,
            leader_election="lock",
        )
        run = await operator.start(Client(InProcessTransport(cluster, client="operator"), clock=clock))
        await clock.sleep(5)
        missing = "\n".join(str(rule) for rule in run.missing_rights)
        assert 'resources: ["apps"], verbs: ["get", "list", "watch"]} in a Role in namespace shop' in missing
        assert "leases" not in missing, "the lease is in the operator's own namespace"
        await run.stop()


async def test_rights_are_checked_in_the_namespaces_of_this_run() -> None:
    def allowed(attributes: Any) -> bool:
        if attributes.namespace == "shop":
            return bool(attributes.resource != "events")
        return bool(attributes.group == "authorization.k8s.io")

    clock = VirtualClock()
    async with DevCluster(clock=clock, http=False, policy=allowed) as cluster:
        operator = Operator(controllers=[Recorder()], metrics_port=None, health_port=None)
        client = Client(InProcessTransport(cluster, client="operator"), clock=clock)
        async with operator.running(client, namespaces=["shop"]) as run:
            await clock.sleep(5)
            (missing,) = run.missing_rights
        assert (missing.resource, missing.verbs) == ("events", ("create", "patch"))
        assert str(missing).endswith("in a Role in namespace shop")


async def test_a_right_to_named_objects_is_missing_only_for_the_denied_names() -> None:
    def allowed(attributes: Any) -> bool:
        return (
            attributes.resource != "secrets"
            or attributes.name not in {"get": "bc", "patch": "b"}[attributes.verb]
        )

    clock = VirtualClock()
    async with DevCluster(clock=clock, http=False, policy=allowed) as cluster:
        client = Client(InProcessTransport(cluster, client="operator"), clock=clock)
        declared = (rule_for("v1/Secret", "get", "patch", names=["a", "b", "c"]),)
        assert [str(rule) for rule in await missing_rules(client, [Grant("shop", declared)])] == [
            f'{{apiGroups: [""], resources: ["secrets"], verbs: ["{verb}"], resourceNames: [{names}]}} '
            "in a Role in namespace shop"
            for verb, names in (("get", '"b", "c"'), ("patch", '"b"'))
        ]
