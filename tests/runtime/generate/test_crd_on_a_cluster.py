"""Generated CRDs on a cluster: accepted under strict validation, and doing what the Python types say."""

import asyncio
import enum
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    ApiError,
    Client,
    CustomResource,
    Field,
    HttpTransport,
    IntOrString,
    Invalid,
    NotFound,
    ObjectMeta,
    Part,
    Quantity,
    Scale,
    Spec,
    Status,
    UnknownKind,
    custom_resource_definition,
    load_config,
    printer_column,
    rule,
)

CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Port(Part):
    """A port."""

    name: str
    protocol: Literal["TCP", "UDP"] = "TCP"
    port: Annotated[int, Field(ge=1, le=65535)]
    target: IntOrString | None = None


class Backup(Part, rules=[rule("self.keep >= 1", "keep at least one", field_path=".keep")]):
    enabled: bool = False
    schedule: Annotated[str, Field(min_length=1, pattern=r"^\S+( \S+){4}$|^@\w+$")] = "@daily"
    keep: int = 7


class WholeSpec(Spec, rules=[rule("self.low <= self.high", "low is above high", field_path=".high")]):
    """Every form a field can have."""

    image: Annotated[str, Field(immutable=True)]
    """The image. It cannot be changed."""
    zone: Annotated[str, Field(immutable=True, max_length=9)] | None = None
    low: int = 1
    high: int = 2
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5
    size: Quantity = Quantity("1Gi")
    choice: Annotated[Literal["a", "b"] | None, Field(nullable=True)] = None
    must: int | None
    colour: Colour = Colour.RED
    ports: Annotated[tuple[Port, ...], Field(map_keys=["name", "protocol"])] = ()
    tags: Annotated[list[str], Field(list_type="set", max_length=10)] = msgspec.field(default_factory=list)
    numbers: set[int] = msgspec.field(default_factory=set)
    labels: Annotated[dict[str, str], Field(map_type="atomic")] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    template: Annotated[dict[str, Any], Field(embedded_resource=True)] | None = None
    anything: Any = None
    until: datetime | None = None
    payload: bytes = b""
    backup: Backup = Backup()
    named: Annotated[dict[str, Backup], Field(max_length=10)] = msgspec.field(default_factory=dict)
    surge: IntOrString = "25%"
    replicas: int = 1
    namespace: Annotated[str | None, Field(immutable=True)] = None


class WholeStatus(Status):
    replicas: int = 0
    selector: str = ""
    since: datetime | None = None


class Whole(
    CustomResource[WholeSpec, WholeStatus],
    group="whole.example.com",
    version="v1",
    short_names=["whl"],
    categories=["example"],
    columns=[printer_column("N", ".status.replicas", type="integer", priority=1)],
    scale=Scale(
        spec_replicas_path=".spec.replicas",
        status_replicas_path=".status.replicas",
        label_selector_path=".status.selector",
    ),
    selectable_fields=[".spec.image"],
    rules=[rule("self.metadata.name.size() <= 40", "the name is too long")],
    storage=True,
):
    """A resource with every form of field."""


class WholeBeta(
    CustomResource[WholeSpec, WholeStatus],
    group="whole.example.com",
    version="v1beta1",
    kind="Whole",
    short_names=["whl"],
    categories=["example"],
    deprecated="use v1",
):
    """The version before."""


@pytest_asyncio.fixture
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    target = load_config(kubeconfig=cluster.kubeconfig)
    async with Client(HttpTransport(target.access), namespace="default") as connected:
        yield connected


@pytest_asyncio.fixture
async def wholes(client: Client) -> AsyncIterator[Client]:
    """A client of a cluster that serves Whole, and holds none."""
    crd = custom_resource_definition([Whole, WholeBeta])
    await client.apply(crd, field_manager="test", force=True, field_validation="Strict")
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(Whole, namespace="default")
                await client.list(WholeBeta, namespace="default")
                break
            except (NotFound, UnknownKind):
                await asyncio.sleep(0.05)
    yield client
    for each in (await client.list(Whole, namespace="default")).items:
        await client.delete(Whole, each.name, namespace="default")


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": Whole.api_version,
        "kind": "Whole",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": "i", "must": 1, **spec},
    }


async def test_a_resource_written_from_python_reads_back_the_same(wholes: Client) -> None:
    spec = WholeSpec(
        image="i",
        must=None,
        zone="z",
        size=Quantity("500m"),
        ports=(
            Port(name="http", port=80, target="web"),
            Port(name="http", protocol="UDP", port=80, target=8080),
        ),
        tags=["a", "b"],
        numbers={3},
        labels={"a": "b"},
        extra={"deep": {"er": [1, {"x": None}]}},
        template={"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
        anything=[1, "two"],
        payload=b"\x00\xff",
        named={"first": Backup(keep=3)},
        colour=Colour.BLUE,
    )
    made = await wholes.create(
        Whole(metadata=ObjectMeta(name="same", namespace="default"), spec=spec), field_validation="Strict"
    )
    assert made.spec == spec
    assert (await wholes.get(Whole, "same", namespace="default")).spec == spec
    assert (await wholes.get(WholeBeta, "same", namespace="default")).spec == spec


async def test_the_server_fills_in_the_defaults_that_python_has(wholes: Client) -> None:
    made = await wholes.create(manifest("defaults", ports=[{"name": "a", "port": 1}], named={"x": {}}))
    assert made["spec"] == {
        "image": "i",
        "must": 1,
        "low": 1,
        "high": 2,
        "ratio": 0.5,
        "size": "1Gi",
        "colour": "red",
        "ports": [{"name": "a", "port": 1, "protocol": "TCP"}],
        "backup": {"enabled": False, "schedule": "@daily", "keep": 7},
        "named": {"x": {"enabled": False, "schedule": "@daily", "keep": 7}},
        "surge": "25%",
        "replicas": 1,
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": "1GB"}, "spec.size"),
        ({"size": True}, "spec.size"),
        ({"low": 5}, "spec.high"),
        ({"ratio": 1}, "spec.ratio"),
        ({"colour": "green"}, "spec.colour"),
        ({"choice": "z"}, "spec.choice"),
        ({"backup": {"keep": 0}}, "spec.backup.keep"),
        ({"backup": {"schedule": "often"}}, "spec.backup.schedule"),
        ({"named": {"x": {"keep": 0}}}, "spec.named[x].keep"),
        ({"ports": [{"name": "a", "port": 0}]}, "spec.ports[0].port"),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "spec.ports[1]"),
        ({"tags": ["a", "a"]}, "spec.tags[1]"),
        ({"surge": 1.5}, "spec.surge"),
        ({"until": "tomorrow"}, "spec.until"),
        ({"template": {"kind": "Pod"}}, "spec.template.apiVersion"),
        ({"zone": "0123456789"}, "spec.zone"),
    ],
)
async def test_the_server_rejects_values_that_the_types_forbid(
    wholes: Client, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as error:
        await wholes.create(manifest("refused", **spec))
    assert field in {cause.field for cause in error.value.causes}


async def test_a_nullable_field_keeps_null_and_an_optional_one_drops_it(wholes: Client) -> None:
    made = await wholes.create(manifest("nulls", choice=None, must=None, high=None))
    assert made["spec"]["choice"] is None
    assert made["spec"]["must"] is None
    assert made["spec"]["high"] == 2


async def test_an_immutable_field_cannot_be_changed(wholes: Client) -> None:
    await wholes.create(manifest("fixed", zone="z", namespace="n"))
    for change in ({"image": "other"}, {"zone": "y"}, {"zone": None}, {"namespace": None}):
        with pytest.raises(Invalid, match="cannot be"):
            await wholes.patch(Whole, "fixed", {"spec": change}, namespace="default")
    await wholes.patch(Whole, "fixed", {"spec": {"high": 9}}, namespace="default")


async def test_unknown_fields_are_pruned_or_rejected(wholes: Client) -> None:
    with pytest.raises(ApiError, match="unknown field"):
        await wholes.create(manifest("strict", surprise=1), field_validation="Strict")
    made = await wholes.create(manifest("pruned", surprise=1))
    assert "surprise" not in made["spec"]
    with pytest.raises(ApiError, match="surprise: field not declared in schema"):
        await wholes.apply(manifest("applied", surprise=1))


async def test_status_is_a_separate_subresource(wholes: Client) -> None:
    await wholes.create(manifest("status"))
    patched = await wholes.patch(
        Whole,
        "status",
        {"spec": {"high": 7}, "status": {"replicas": 3}},
        namespace="default",
        subresource="status",
    )
    assert (patched.spec.high, patched.status.replicas) == (2, 3)


async def test_resources_are_found_by_their_selectable_fields(wholes: Client) -> None:
    await wholes.create(manifest("selectable"))
    listed = await wholes.list(Whole, namespace="default", field_selector="spec.image=i")
    assert [each.name for each in listed.items] == ["selectable"]
    assert not (await wholes.list(Whole, namespace="default", field_selector="spec.image=j")).items
