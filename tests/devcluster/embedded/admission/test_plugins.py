"""LimitRanges, PriorityClasses and service accounts, on the embedded server alone."""

from __future__ import annotations

import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.devcluster.embedded.admission.plugin_names import (
    PluginNameError,
    check_enabled_plugins,
    without_plugins,
)
from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import PODS, Api

LIMITS = "/api/v1/namespaces/default/limitranges"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


def pod(**spec: object) -> dict[str, object]:
    return {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


async def test_a_limit_range_sets_defaults_and_notes_them(api: Api):
    limit = {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}
    await api.post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    created = (await api.post(PODS, pod())).body
    expected = {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}
    assert created["spec"]["containers"][0]["resources"] == expected
    note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    assert created["metadata"]["annotations"] == {"kubernetes.io/limit-ranger": note}


async def test_a_container_above_the_maximum_is_rejected(api: Api):
    limit = {"type": "Pod", "max": {"cpu": "1"}}
    await api.post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    answer = await api.post(PODS, pod())
    assert (answer.status, answer.message) == (
        403,
        'pods "one" is forbidden: maximum cpu usage per Pod is 1.  No limit is specified',
    )


async def test_an_unknown_priority_class_is_rejected(api: Api):
    answer = await api.post(PODS, pod(priorityClassName="none"))
    assert (answer.status, answer.message) == (
        403,
        'pods "one" is forbidden: no PriorityClass with name none was found',
    )


async def test_the_default_priority_class_is_set(api: Api):
    await api.post(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    spec = (await api.post(PODS, pod())).body["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


async def test_a_pod_needs_the_default_account_of_its_namespace(api: Api):
    answer = await api.send("POST", PODS, pod())
    assert answer.status == 403
    assert answer.message.endswith(
        'error looking up service account default/default: serviceaccount "default" not found'
    )


async def test_a_pod_waits_for_the_account_that_a_controller_creates():
    async with DevCluster(http=False) as cluster:
        api = Api(cluster.server)
        await api.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
        created = await api.post("/api/v1/namespaces/new/pods", pod())
    assert (created.status, created.body["spec"]["serviceAccountName"]) == (201, "default")


async def test_a_pod_has_no_account_if_the_plugin_is_off():
    server = Server()
    server.backend.admission[:] = without_plugins(server.backend.admission, {"ServiceAccount"})
    created = await Api(server).send("POST", PODS, pod())
    assert created.status == 201
    assert not {"serviceAccountName", "volumes"} & created.body["spec"].keys()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"None"}, 'plugin "None" is unknown'),
        ({"StorageObjectInUseProtection"}, "plugin StorageObjectInUseProtection cannot be disabled"),
        ({"CertificateSigning"}, "can be disabled only together with CertificateApproval"),
    ],
)
def test_a_plugin_that_cannot_be_disabled_is_reported(names: set[str], problem: str):
    with pytest.raises(PluginNameError, match=problem):
        without_plugins(Server().backend.admission, names)


def test_each_default_plugin_can_be_named():
    chain = Server().backend.admission
    for name in ("LimitRanger", "TaintNodesByCondition", "Priority", "ResourceQuota", "PodResizeValidator"):
        assert len(without_plugins(chain, {name})) == len(chain) - 1
    for idle in ("PodGroupProtection", "JobValidation", "ClusterTrustBundleAttest", "AlwaysPullImages"):
        assert len(without_plugins(chain, {idle})) == len(chain)
    check_enabled_plugins({"LimitRanger", "JobValidation"})
    with pytest.raises(PluginNameError, match="NodeRestriction is not implemented by this engine"):
        check_enabled_plugins({"NodeRestriction"})
