"""Descriptions and list types in CRDs that embed Kubernetes' own types."""

import functools
from typing import Any

import msgspec
import pytest
from lightkube.models.core_v1 import PodTemplateSpec, ServiceSpec

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    Client,
    CustomResource,
    NotFound,
    Part,
    Spec,
    Status,
    UnknownKind,
    custom_resource_definition,
)
from kapsa.runtime.generate._descriptions import shorten
from tests.eventually import eventually

KUBECTL_LIMIT = 262_144


class JobSpec(Spec):
    template: PodTemplateSpec
    """The pods."""
    service: ServiceSpec | None = None


class BatchRun(CustomResource[JobSpec, Status], group="example.com", version="v1"):
    """A run of pods."""


class NoteSpec(Spec):
    description: str = ""
    """The first sentence. The second one, which is longer than the first."""
    parts: "list[Note]" = msgspec.field(default_factory=list)
    by_name: "dict[str, Note]" = msgspec.field(default_factory=dict)


class Note(Part):
    """A note about something."""

    text: str = "description"


class Remark(CustomResource[NoteSpec, Status], group="example.com", version="v1"):
    """A remark. With more to say."""


def root_of(crd: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@functools.cache
def pod_spec() -> dict[str, Any]:
    template = root_of(custom_resource_definition([BatchRun]))["properties"]["spec"]["properties"]["template"]
    schema: dict[str, Any] = template["properties"]["spec"]
    return schema


def test_a_crd_with_a_pod_template_stays_below_the_limit_of_kubectl() -> None:
    fitted = custom_resource_definition([BatchRun])
    assert len(msgspec.json.encode(fitted)) < KUBECTL_LIMIT
    whole = custom_resource_definition([BatchRun], max_description_length=100_000)
    assert len(msgspec.json.encode(whole)) > KUBECTL_LIMIT, "the descriptions made it too large"


def test_a_small_crd_keeps_its_descriptions_whole() -> None:
    spec = root_of(custom_resource_definition([Remark]))["properties"]["spec"]["properties"]
    assert spec["description"]["description"].endswith("longer than the first.")


@pytest.mark.parametrize(("length", "expected"), [(20, "The first sentence."), (0, None)])
def test_a_chosen_length_shortens_every_description_and_no_field(length: int, expected: str | None) -> None:
    root = root_of(custom_resource_definition([Remark], max_description_length=length))
    spec = root["properties"]["spec"]["properties"]
    assert spec["description"].get("description") == expected
    assert spec["parts"]["items"]["properties"]["text"]["default"] == "description"
    assert spec["byName"]["additionalProperties"].get("description") == ("A note about…" if length else None)
    assert root.get("description") == ("A remark." if length else None)


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("Short.", 6, "Short."),
        ("One. Two.", 8, "One."),
        ("One. Two.", 4, "One."),
        ("First line.\nSecond line.", 15, "First line."),
        ("a few words", 8, "a few…"),
        ("unbreakable", 5, ""),
    ],
)
def test_a_text_is_cut_after_a_sentence_or_a_word(text: str, length: int, expected: str) -> None:
    assert shorten(text, length) == expected
    assert len(shorten(text, length)) <= length


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("containers", ["name"]),
        ("initContainers", ["name"]),
        ("volumes", ["name"]),
        ("imagePullSecrets", ["name"]),
        ("hostAliases", ["ip"]),
        ("topologySpreadConstraints", ["topologyKey", "whenUnsatisfiable"]),
        ("tolerations", None),
    ],
)
def test_the_lists_of_a_pod_keep_their_keys(name: str, keys: list[str] | None) -> None:
    assert pod_spec()["properties"][name].get("x-kubernetes-list-map-keys") == keys


def test_the_ports_of_a_container_are_identified_by_port_and_protocol_with_its_default() -> None:
    ports = pod_spec()["properties"]["containers"]["items"]["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert ports["items"]["properties"]["protocol"]["default"] == "TCP"


def test_generated_models_describe_each_field_once() -> None:
    crd = custom_resource_definition([BatchRun], max_description_length=100_000)
    template = root_of(crd)["properties"]["spec"]["properties"]["template"]
    container = template["properties"]["spec"]["properties"]["containers"]["items"]
    assert container["description"] == "A single application container that you want to run within a pod."
    assert container["properties"]["image"]["description"].startswith("Container image name. More info:")


async def test_a_crd_with_a_pod_template_is_accepted_and_its_containers_have_a_manager_each(
    cluster: DevCluster,
) -> None:
    crd = custom_resource_definition([BatchRun])
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.apply(crd, field_validation="Strict")
        try:
            for manager in ("ours", "theirs"):
                container = {"name": manager, "image": "nginx", "ports": [{"containerPort": 80}]}
                apply = functools.partial(apply_container, client, container, manager)
                await eventually(apply, bool, "the kind to be served")
            stored = await client.get(BatchRun, "one", namespace="default")
        finally:
            await client.delete("apiextensions.k8s.io/v1/CustomResourceDefinition", crd["metadata"]["name"])
    assert stored.spec.template.spec is not None
    containers = stored.spec.template.spec.containers
    assert [each.name for each in containers] == ["ours", "theirs"]
    assert containers[0].ports is not None
    assert containers[0].ports[0].protocol == "TCP"


async def apply_container(client: Client, container: dict[str, Any], manager: str) -> bool:
    manifest = {
        "apiVersion": "example.com/v1",
        "kind": "BatchRun",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    try:
        await client.apply(manifest, field_manager=manager)
    except (NotFound, UnknownKind):
        return False
    return True
