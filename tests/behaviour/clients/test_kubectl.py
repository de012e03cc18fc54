"""The real kubectl against the cluster: its commands and their output."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from kapsa.devcluster import DevCluster
from tests.behaviour.clients.kubectl import Kubectl
from tests.eventually import eventually

pytestmark = pytest.mark.sampled(12, of="module")

NUMBERS = itertools.count(1)
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: boats.kubectl.kapsa.dev
spec:
  group: kubectl.kapsa.dev
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.oars, statusReplicasPath: .status.oars}}
    additionalPrinterColumns:
    - {name: Oars, type: integer, jsonPath: .spec.oars}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: Boat floats.
        properties:
          spec:
            type: object
            description: The desired state.
            required: [oars]
            properties:
              oars: {type: integer, minimum: 1, description: The number of oars.}
              color: {type: string}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
"""
BOAT = {
    "apiVersion": "kubectl.kapsa.dev/v1",
    "kind": "Boat",
    "metadata": {"name": "dinghy", "labels": {"size": "small"}},
    "spec": {"oars": 2, "color": "blue"},
}


def deployment(image: str = "example.com/web:1", replicas: int = 2) -> dict[str, object]:
    labels = {"app": "web"}
    containers = [{"name": "web", "image": image}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


@pytest.fixture
async def kubectl(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Kubectl]:
    namespace = f"kubectl-{os.getpid()}-{next(NUMBERS)}"
    tool = Kubectl(cluster, namespace, tmp_path)
    await tool.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    yield tool
    await tool("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
async def boats(kubectl: Kubectl) -> Kubectl:
    await kubectl.apply(CRD)
    await kubectl("wait", "--for=condition=Established", "crd/boats.kubectl.kapsa.dev", "--timeout=30s")
    return kubectl


async def test_api_resources_lists_built_in_and_custom_kinds(boats: Kubectl) -> None:
    listed = await boats("api-resources")
    assert "deployments" in listed
    assert "deploy" in listed
    rows = [line.split() for line in listed.splitlines()]
    assert ["boats", "bt", "kubectl.kapsa.dev/v1", "true", "Boat"] in rows
    assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in rows
    named = await boats("api-resources", "--namespaced=false", "-o", "name")
    assert "namespaces" in named.split()
    assert "boats.kubectl.kapsa.dev" not in named.split()


async def test_api_versions_and_version_are_shown(kubectl: Kubectl) -> None:
    assert {"v1", "apps/v1", "batch/v1"} <= set((await kubectl("api-versions")).split())
    assert "Server Version: v1." in await kubectl("version")


async def test_explain_describes_fields_of_built_in_and_custom_kinds(boats: Kubectl) -> None:
    built_in = await boats("explain", "deployment.spec.strategy")
    assert "KIND:       Deployment" in built_in
    assert "rollingUpdate\t<RollingUpdateDeployment>" in built_in
    pods = " ".join((await boats("explain", "pod.spec")).split())
    assert "DESCRIPTION: Specification of the desired behavior of the pod." in pods
    assert "containers <[]Container> -required- List of containers belonging to the pod." in pods
    # The real server publishes a new kind's schema a moment after it is established.
    _, custom, _ = await eventually(
        lambda: boats.run("explain", "boat.spec"), lambda answer: answer[0] == 0, "the kind's schema"
    )
    assert "The desired state." in custom
    assert "oars\t<integer> -required-" in custom
    assert "The number of oars." in custom


async def test_apply_creates_configures_and_leaves_unchanged(kubectl: Kubectl) -> None:
    assert await kubectl.apply(deployment()) == "deployment.apps/web created\n"
    assert await kubectl.apply(deployment()) == "deployment.apps/web unchanged\n"
    assert await kubectl.apply(deployment(image="example.com/web:2")) == "deployment.apps/web configured\n"
    shown = await kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"
    )
    assert shown == "example.com/web:2"


async def test_apply_rejects_an_unknown_field(kubectl: Kubectl) -> None:
    wrong = deployment()
    wrong["spec"]["replica"] = 3  # type: ignore[index]
    code, _, errors = await kubectl.run("apply", "-f", "-", given=wrong)
    assert code == 1
    assert 'unknown field "spec.replica"' in errors


async def test_apply_rejects_a_kind_that_is_not_installed(kubectl: Kubectl) -> None:
    ship = {"apiVersion": "nowhere.kapsa.dev/v1", "kind": "Ship", "metadata": {"name": "x"}}
    code, _, errors = await kubectl.run("apply", "-f", "-", given=ship)
    assert code == 1
    assert 'no matches for kind "Ship" in version "nowhere.kapsa.dev/v1"' in errors
    assert "ensure CRDs are installed first" in errors


async def test_apply_rejects_an_invalid_custom_object(boats: Kubectl) -> None:
    code, _, errors = await boats.run("apply", "-f", "-", given={**BOAT, "spec": {"oars": 0}})
    assert code == 1
    assert "spec.oars: Invalid value: 0: spec.oars in body should be greater than or equal to 1" in errors


async def test_server_side_apply_conflicts_and_is_forced(kubectl: Kubectl) -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    two = {**one, "data": {"a": "2"}}
    arguments = ("apply", "--server-side", "-f", "-")
    assert await kubectl(*arguments, "--field-manager=alpha", given=one) == "configmap/c serverside-applied\n"
    code, _, errors = await kubectl.run(*arguments, "--field-manager=beta", given=two)
    assert code == 1
    assert 'Apply failed with 1 conflict: conflict with "alpha": .data.a' in errors
    forced = await kubectl(*arguments, "--field-manager=beta", "--force-conflicts", given=two)
    assert forced == "configmap/c serverside-applied\n"
    assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.data.a}") == "2"
    managers = await kubectl(
        "get",
        "configmap",
        "c",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    )
    assert managers == "beta"


async def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment())
    code, output, _ = await kubectl.run("diff", "-f", "-", given=deployment(image="example.com/web:2"))
    assert code == 1
    assert "-      - image: example.com/web:1" in output
    assert "+      - image: example.com/web:2" in output
    code, output, _ = await kubectl.run("diff", "-f", "-", given=deployment())
    assert (code, output) == (0, "")


async def test_get_shows_printer_columns(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    header, row = (await boats("get", "boats")).splitlines()
    assert header.split() == ["NAME", "OARS"]
    assert row.split() == ["dinghy", "2"]
    header, row = (await boats("get", "bt", "-o", "wide")).splitlines()
    assert header.split() == ["NAME", "OARS", "COLOR"]
    assert row.split() == ["dinghy", "2", "blue"]


async def test_get_shows_built_in_columns_and_all(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment())
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    header, row = (await kubectl("get", "deployments")).splitlines()
    assert header.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert row.split()[:4] == ["web", "2/2", "2", "2"]
    wide = await kubectl("get", "deployments", "-o", "wide")
    assert "example.com/web:1" in wide
    assert "app=web" in wide
    listed = await kubectl("get", "all")
    assert "deployment.apps/web" in listed
    assert "replicaset.apps/web-" in listed
    assert listed.count("pod/web-") == 2


async def test_get_writes_yaml_and_json(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    assert yaml.safe_load(await boats("get", "boat", "dinghy", "-o", "yaml"))["spec"] == {
        "oars": 2,
        "color": "blue",
    }
    assert '"kind": "List"' in await boats("get", "boats", "-o", "json")
    assert await boats("get", "boats", "-o", "name") == "boat.kubectl.kapsa.dev/dinghy\n"


async def test_get_selects_by_label_and_field(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    await boats.apply({**BOAT, "metadata": {"name": "galley", "labels": {"size": "large"}}})
    assert (await boats("get", "boats", "-l", "size=large", "-o", "name")).split() == [
        "boat.kubectl.kapsa.dev/galley"
    ]
    assert (await boats("get", "boats", "-l", "size notin (large)", "-o", "name")).split() == [
        "boat.kubectl.kapsa.dev/dinghy"
    ]
    by_name = await boats("get", "boats", "--field-selector", "metadata.name=galley", "-o", "name")
    assert by_name.split() == ["boat.kubectl.kapsa.dev/galley"]


async def test_get_reports_that_nothing_was_found(kubectl: Kubectl) -> None:
    code, output, errors = await kubectl.run("get", "configmaps", "-l", "none=such")
    assert (code, output) == (0, "")
    assert errors == f"No resources found in {kubectl.namespace} namespace.\n"
    code, _, errors = await kubectl.run("get", "configmap", "none")
    assert code == 1
    assert errors == 'Error from server (NotFound): configmaps "none" not found\n'
    code, _, errors = await kubectl.run("get", "wizards")
    assert code == 1
    assert 'the server doesn\'t have a resource type "wizards"' in errors


async def test_get_watch_follows_changes(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    watching = await boats.start("get", "boats", "--watch", "--no-headers")
    assert watching.stdout is not None
    async with asyncio.timeout(60):
        assert (await watching.stdout.readline()).split() == [b"dinghy", b"2"]
        await boats("patch", "boat", "dinghy", "--type=merge", "-p", '{"spec":{"oars":4}}')
        assert (await watching.stdout.readline()).split() == [b"dinghy", b"4"]
        watching.terminate()
        await watching.communicate()


async def test_describe_shows_spec_status_and_events(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment())
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    described = await kubectl("describe", "deployment", "web")
    assert "2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in described
    assert "MinimumReplicasAvailable" in described
    assert "ScalingReplicaSet" in described
    pods = await kubectl("describe", "pods", "-l", "app=web")
    assert "Controlled By:  ReplicaSet/web-" in pods


async def test_describe_shows_a_custom_object(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    described = await boats("describe", "boat", "dinghy")
    assert "Kind:         Boat" in described
    assert "Oars:   2" in described


async def test_label_and_annotate_change_metadata(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    assert await boats("label", "boat", "dinghy", "crew=two") == "boat.kubectl.kapsa.dev/dinghy labeled\n"
    code, _, errors = await boats.run("label", "boat", "dinghy", "crew=three")
    assert code == 1
    assert "--overwrite is false" in errors
    await boats("label", "boat", "dinghy", "crew=three", "--overwrite")
    await boats("annotate", "boat", "dinghy", "note=leaks")
    shown = await boats(
        "get", "boat", "dinghy", "-o", "jsonpath={.metadata.labels.crew} {.metadata.annotations.note}"
    )
    assert shown == "three leaks"
    await boats("label", "boat", "dinghy", "crew-")
    assert await boats("get", "boat", "dinghy", "-o", "jsonpath={.metadata.labels.crew}") == ""


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (
            "strategic",
            '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"example.com/web:9"}]}}}}',
        ),
        (
            "merge",
            '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"example.com/web:9"}]}}}}',
        ),
        (
            "json",
            '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/web:9"}]',
        ),
    ],
)
async def test_patch_changes_by_each_type(kubectl: Kubectl, kind: str, change: str) -> None:
    await kubectl.apply(deployment())
    assert (
        await kubectl("patch", "deployment", "web", f"--type={kind}", "-p", change)
        == "deployment.apps/web patched\n"
    )
    shown = await kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"
    )
    assert shown == "example.com/web:9"
    # kubectl compares the resource versions around its patch: a controller may write the status in between.
    await eventually(
        lambda: kubectl("patch", "deployment", "web", f"--type={kind}", "-p", change),
        "deployment.apps/web patched (no change)\n".__eq__,
        "a patch without a change",
    )


async def test_patch_writes_status_by_its_subresource(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    await boats(
        "patch", "boat", "dinghy", "--subresource=status", "--type=merge", "-p", '{"status":{"oars":2}}'
    )
    assert await boats("get", "boat", "dinghy", "-o", "jsonpath={.status.oars}") == "2"


async def test_edit_writes_the_result_of_the_editor(boats: Kubectl) -> None:
    await boats.apply(BOAT)
    editor = boats.directory / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/oars: 2/oars: 6/' \"$1\"\n")
    editor.chmod(0o755)
    assert "boat.kubectl.kapsa.dev/dinghy edited" in await boats("edit", "boat", "dinghy")
    assert await boats("get", "boat", "dinghy", "-o", "jsonpath={.spec.oars}") == "6"


async def test_scale_changes_built_in_and_custom_kinds(boats: Kubectl) -> None:
    await boats.apply(deployment())
    await boats.apply(BOAT)
    assert await boats("scale", "deployment", "web", "--replicas=3") == "deployment.apps/web scaled\n"
    await boats("rollout", "status", "deployment/web", "--timeout=60s")
    assert await boats("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}") == "3"
    assert await boats("scale", "boat", "dinghy", "--replicas=5") == "boat.kubectl.kapsa.dev/dinghy scaled\n"
    assert await boats("get", "boat", "dinghy", "-o", "jsonpath={.spec.oars}") == "5"


async def test_rollout_shows_status_and_history_and_undoes(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment())
    done = await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert 'deployment "web" successfully rolled out' in done
    await kubectl("set", "image", "deployment/web", "web=example.com/web:2")
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    history = await kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    assert "example.com/web:1" in await kubectl("rollout", "history", "deployment/web", "--revision=1")
    assert await kubectl("rollout", "undo", "deployment/web") == "deployment.apps/web rolled back\n"
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    shown = await kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"
    )
    assert shown == "example.com/web:1"
    history = await kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]


async def test_rollout_restart_makes_new_pods(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment(replicas=1))
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    before = await kubectl("get", "pods", "-l", "app=web", "-o", "name")
    await kubectl("rollout", "restart", "deployment/web")
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    after = await kubectl(
        "get", "pods", "-l", "app=web", "--field-selector=status.phase=Running", "-o", "name"
    )
    assert set(after.split()) - set(before.split())


async def test_wait_returns_when_a_condition_holds(boats: Kubectl) -> None:
    await boats.apply(deployment())
    met = await boats("wait", "--for=condition=Available", "deployment/web", "--timeout=60s")
    assert met == "deployment.apps/web condition met\n"
    await boats.apply(BOAT)
    code, _, errors = await boats.run("wait", "--for=condition=Ready", "boat/dinghy", "--timeout=1s")
    assert code == 1
    assert "timed out waiting for the condition" in errors
    await boats(
        "patch", "boat", "dinghy", "--subresource=status", "--type=merge", "-p", '{"status":{"oars":2}}'
    )
    assert await boats("wait", "--for=jsonpath={.status.oars}=2", "boat/dinghy", "--timeout=10s") == (
        "boat.kubectl.kapsa.dev/dinghy condition met\n"
    )


async def test_wait_returns_when_an_object_is_gone(boats: Kubectl) -> None:
    await boats.apply({**BOAT, "metadata": {"name": "dinghy", "finalizers": ["kapsa.dev/moored"]}})
    await boats("delete", "boat", "dinghy", "--wait=false")
    waiting = await boats.start("wait", "--for=delete", "boat/dinghy", "--timeout=30s")
    await boats("patch", "boat", "dinghy", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    await waiting.communicate()
    assert waiting.returncode == 0
    assert await boats("get", "boats", "-o", "name") == ""


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_delete_cascades_to_dependents(kubectl: Kubectl, cascade: str) -> None:
    await kubectl.apply(deployment())
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    deleted = await kubectl("delete", "deployment", "web", f"--cascade={cascade}")
    assert deleted.startswith('deployment.apps "web" deleted')
    await kubectl("wait", "--for=delete", "replicaset", "-l", "app=web", "--timeout=60s")
    await kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=60s")
    assert await kubectl("get", "replicasets,pods", "-l", "app=web", "-o", "name") == ""


async def test_delete_orphans_dependents_on_request(kubectl: Kubectl) -> None:
    await kubectl.apply(deployment())
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    await kubectl("delete", "deployment", "web", "--cascade=orphan")
    await kubectl("wait", "--for=delete", "deployment/web", "--timeout=30s")
    left = await kubectl(
        "get", "replicasets", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.ownerReferences}"
    )
    assert left == ""
    assert "replicaset.apps/web-" in await kubectl("get", "replicasets", "-l", "app=web", "-o", "name")


async def test_a_namespace_is_deleted_with_its_objects(kubectl: Kubectl) -> None:
    other = f"{kubectl.namespace}-other"
    await kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    await kubectl("apply", "-n", other, "-f", "-", given=deployment())
    await kubectl("delete", "namespace", other, "--timeout=60s")
    code, _, errors = await kubectl.run("get", "namespace", other)
    assert code == 1
    assert "NotFound" in errors


async def test_proxy_passes_requests_on_with_the_credentials(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "settings", "--from-literal=color=blue")
    proxy = await kubectl.start("proxy", "--port=0")
    assert proxy.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await proxy.stdout.readline()).decode()
            address = line.removeprefix("Starting to serve on ").strip()
            path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/settings"
            async with aiohttp.ClientSession(f"http://{address}") as session:
                async with session.get(path) as response:
                    assert (response.status, (await response.json())["data"]) == (200, {"color": "blue"})
                async with session.delete(f"{path}-none") as response:
                    assert (response.status, (await response.json())["reason"]) == (404, "NotFound")
    finally:
        proxy.terminate()
        await proxy.communicate()


@pytest.mark.parametrize(
    "arguments",
    [
        ("exec", "lone", "--", "ls"),
        ("attach", "lone"),
        ("cp", "lone:/etc/hosts", "hosts"),
        ("port-forward", "pod/lone", ":80"),
    ],
)
async def test_what_needs_a_running_container_is_refused(
    kubectl: Kubectl, engine: str, arguments: tuple[str, ...]
) -> None:
    await kubectl("run", "lone", "--image=example.com/lone:1")
    await kubectl("wait", "--for=condition=Ready", "pod/lone", "--timeout=30s")
    code, _, errors = await kubectl.run(*arguments)
    assert code == 1
    if engine == "embedded":
        assert "nothing runs behind its pods and nodes; use the real engine" in errors
