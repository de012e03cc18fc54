"""Defaults, immutable fields and validation of workloads and pods."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer

POD = {"containers": [{"name": "main", "image": "app:1"}]}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
SPEC: dict[str, Any] = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}


async def test_a_deployment_is_defaulted(api: ApiServer) -> None:
    stored = await api.create("deployments", "web", spec=SPEC, status={"replicas": 7})
    assert stored["spec"] == {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "app:1",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "imagePullPolicy": "IfNotPresent",
                    }
                ],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "securityContext": {},
                "schedulerName": "default-scheduler",
            },
        },
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    assert stored["status"] == {}
    assert stored["metadata"]["generation"] == 1


async def test_a_change_of_the_spec_raises_the_generation_and_keeps_the_status(api: ApiServer) -> None:
    stored = await api.create("deployments", "web", spec=SPEC)
    seen = await api.update_status("deployments", {**stored, "status": {"observedGeneration": 1}})
    assert seen["metadata"]["generation"] == 1
    seen["spec"]["replicas"] = 5
    changed = await api.update("deployments", {**seen, "status": {"replicas": 99}})
    assert changed["metadata"]["generation"] == 2
    assert changed["status"] == {"observedGeneration": 1}


async def test_the_status_subresource_changes_annotations_of_a_deployment_but_not_its_spec(
    api: ApiServer,
) -> None:
    stored = await api.create("deployments", "web", spec=SPEC)
    stored["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    stored["metadata"]["labels"] = {"sneaky": "yes"}
    stored["spec"]["replicas"] = 9
    seen = await api.update_status("deployments", stored)
    assert seen["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
    assert "labels" not in seen["metadata"]
    assert seen["spec"]["replicas"] == 1


async def test_a_selector_is_immutable(api: ApiServer) -> None:
    stored = await api.create("deployments", "web", spec=SPEC)
    stored["spec"]["selector"] = {"matchLabels": {"app": "web", "tier": "x"}}
    stored["spec"]["template"]["metadata"]["labels"]["tier"] = "x"
    with pytest.raises(StatusError) as rejected:
        await api.update("deployments", stored)
    assert rejected.value.message == (
        'Deployment.apps "web" is invalid: spec.selector: Invalid value: '
        '{"matchLabels":{"app":"web","tier":"x"}}: field is immutable'
    )


async def test_all_errors_of_a_deployment_are_reported_at_once(api: ApiServer) -> None:
    spec = {
        "replicas": -1,
        "selector": {"matchLabels": {"app": "api"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "Main"}]}},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
    }
    message = await api.rejection("deployments", "web", spec=spec)
    assert message.startswith('Deployment.apps "web" is invalid: [')
    for error in (
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
        "spec.template.spec.containers[0].image: Required value",
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
    ):
        assert error in message


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/app", "Always"),
        ("host:5000/app:2", "IfNotPresent"),
        ("app@sha256:" + "a" * 64, "IfNotPresent"),
    ],
)
async def test_the_pull_policy_follows_the_tag(api: ApiServer, image: str, policy: str) -> None:
    pod = await api.create("pods", "lone", spec={"containers": [{"name": "c", "image": image}]})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


async def test_limits_become_requests_and_quantities_canonical(api: ApiServer) -> None:
    container = {"name": "c", "image": "app:1", "resources": {"limits": {"cpu": "1.5", "memory": "1024Mi"}}}
    pod = await api.create("pods", "lone", spec={"containers": [container]})
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources == {
        "limits": {"cpu": "1500m", "memory": "1Gi"},
        "requests": {"cpu": "1500m", "memory": "1Gi"},
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


async def test_a_pod_gets_tolerations_priority_account_and_token(api: ApiServer) -> None:
    pod = await api.create("pods", "lone", spec=POD)
    spec = pod["spec"]
    assert [t["key"] for t in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert spec["volumes"][-1]["name"] == mount["name"]


async def test_a_pod_of_an_account_that_does_not_exist_is_rejected(api: ApiServer) -> None:
    message = await api.rejection("pods", "lone", spec={**POD, "serviceAccountName": "ghost"})
    assert message == (
        'pods "lone" is forbidden: error looking up service account default/ghost: serviceaccount "ghost" not found'
    )


async def test_only_the_image_of_a_pods_containers_can_change(api: ApiServer) -> None:
    pod = await api.create("pods", "lone", spec=POD)
    pod["spec"]["containers"][0]["image"] = "app:2"
    changed = await api.update("pods", pod)
    assert changed["metadata"]["generation"] == 2
    changed["spec"]["containers"][0]["command"] = ["sh"]
    with pytest.raises(StatusError, match="pod updates may not change fields other than"):
        await api.update("pods", changed)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({}, "spec.containers: Required value"),
        (
            {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "y"}]},
            'spec.containers[1].name: Duplicate value: "c"',
        ),
        (
            {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Perhaps"},
            'spec.restartPolicy: Unsupported value: "Perhaps": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 99999}]}]},
            "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive",
        ),
        (
            {"containers": [{"name": "c", "image": "x", "livenessProbe": {}}]},
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
    ],
)
async def test_an_invalid_pod_is_rejected(api: ApiServer, spec: dict[str, Any], error: str) -> None:
    assert await api.rejection("pods", "lone", spec=spec) == f'Pod "lone" is invalid: {error}'


async def test_a_stateful_set_allows_few_changes(api: ApiServer) -> None:
    stored = await api.create("statefulsets", "db", spec={**SPEC, "serviceName": "db"})
    assert stored["spec"]["podManagementPolicy"] == "OrderedReady"
    assert stored["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert stored["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    stored["spec"]["replicas"] = 3
    stored = await api.update("statefulsets", stored)
    stored["spec"]["serviceName"] = "other"
    with pytest.raises(StatusError, match="updates to statefulset spec for fields other than"):
        await api.update("statefulsets", stored)


async def test_a_daemon_set_counts_the_generations_of_its_template(api: ApiServer) -> None:
    stored = await api.create("daemonsets", "agent", spec=SPEC)
    annotation = "deprecated.daemonset.template.generation"
    assert stored["metadata"]["annotations"][annotation] == "1"
    stored["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    assert (await api.update("daemonsets", stored))["metadata"]["annotations"][annotation] == "2"


async def test_a_job_gets_a_generated_selector_and_its_template_is_immutable(api: ApiServer) -> None:
    template = {"spec": {**POD, "restartPolicy": "Never"}}
    stored = await api.create("jobs", "work", spec={"template": template})
    uid = stored["metadata"]["uid"]
    assert stored["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert stored["spec"]["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "work",
        "controller-uid": uid,
        "job-name": "work",
    }
    fields = (
        "completions",
        "parallelism",
        "backoffLimit",
        "completionMode",
        "suspend",
        "podReplacementPolicy",
    )
    assert [stored["spec"][f] for f in fields] == [1, 1, 6, "NonIndexed", False, "TerminatingOrFailed"]
    stored["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    with pytest.raises(StatusError, match=r"spec\.template: Invalid value: .*: field is immutable"):
        await api.update("jobs", stored)


async def test_a_job_requires_a_restart_policy(api: ApiServer) -> None:
    message = await api.rejection("jobs", "work", spec={"template": {"spec": POD}})
    assert message == (
        'Job.batch "work" is invalid: spec.template.spec.restartPolicy: '
        'Required value: valid values: "OnFailure", "Never"'
    )


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
    ],
)
async def test_an_invalid_schedule_of_a_cron_job_is_rejected(
    api: ApiServer, schedule: str, error: str
) -> None:
    job = {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}
    message = await api.rejection("cronjobs", "tick", spec={"schedule": schedule, "jobTemplate": job})
    assert message == f'CronJob.batch "tick" is invalid: spec.schedule: Invalid value: "{schedule}": {error}'


@pytest.mark.parametrize("resource", ["jobs", "cronjobs"])
async def test_a_job_without_a_name_is_rejected_for_that(api: ApiServer, resource: str):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    why = await api.rejection(resource, "", spec=spec if resource == "cronjobs" else {"template": template})
    assert "metadata.name: Required value" in why
