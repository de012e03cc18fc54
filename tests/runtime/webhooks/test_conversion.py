"""Conversion between versions."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from kapsa.runtime import (
    Converter,
    CustomResource,
    ObjectMeta,
)
from kapsa.runtime.webhooks.conversion import ConversionReview, Conversions
from tests.runtime.webhooks.webhook_server import (
    App,
    AppStatus,
    OldApp,
    OldAppConverter,
    OldSpec,
    running,
    webhooks,
)

NEW: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "App",
    "metadata": {"name": "web", "uid": "7", "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}},
    "spec": {"image": "nginx", "replicas": 3},
    "status": {"ready": 2},
}


def test_versions_are_converted_through_the_hub_and_metadata_is_preserved() -> None:
    conversions = Conversions([OldAppConverter()])
    old = conversions.convert(NEW, "example.com/v1alpha1")
    assert old["apiVersion"] == "example.com/v1alpha1"
    assert old["spec"] == {"picture": "nginx", "size": "3"}
    assert old["status"]["ready"] == 2
    assert old["metadata"] == NEW["metadata"]
    back = conversions.convert(old, "example.com/v1")
    assert (back["spec"], back["metadata"]) == (NEW["spec"], NEW["metadata"])
    assert conversions.convert(NEW, "example.com/v1") is NEW


async def test_a_conversion_review_returns_all_objects_or_names_the_one_that_failed() -> None:
    async with running(webhooks(converters=[OldAppConverter()])) as run:
        request = {"uid": "c-1", "desiredAPIVersion": "example.com/v1alpha1", "objects": [NEW, NEW]}
        _, answer = await run.post("/convert", {"request": request})
        assert answer["response"]["result"] == {"status": "Success"}
        assert [each["spec"]["size"] for each in answer["response"]["convertedObjects"]] == ["3", "3"]
        old = {"apiVersion": "example.com/v1alpha1", "kind": "App", "metadata": {"name": "bad"}}
        request = {
            "uid": "c-2",
            "desiredAPIVersion": "example.com/v1",
            "objects": [{**old, "spec": {"size": "x"}}],
        }
        _, answer = await run.post("/convert", {"request": request})
        result = answer["response"]["result"]
        assert result["status"] == "Failure"
        assert "App /bad from example.com/v1alpha1 to example.com/v1: ValueError" in result["message"]
        assert run.seen == [("convert", "converted"), ("convert", "error")]


def test_a_converter_between_different_kinds_or_with_two_hubs_is_rejected() -> None:
    class Other(CustomResource[OldSpec, AppStatus], group="other.com", version="v1"):
        pass

    with pytest.raises(TypeError, match=r"Bad converts Other of other.com to App of example.com"):

        class Bad(Converter[Other, App]):
            pass

    with pytest.raises(TypeError, match="two converters for"):
        Conversions([OldAppConverter(), OldAppConverter()])


def test_a_converter_may_change_labels() -> None:
    class Relabel(OldAppConverter):
        def from_hub(self, resource: App) -> OldApp:
            metadata = ObjectMeta(name=resource.name, labels={"new": "label"})
            return OldApp(metadata=metadata, spec=OldSpec())

    converted = Conversions([Relabel()]).convert(NEW, "example.com/v1alpha1")
    assert converted["metadata"] == {**NEW["metadata"], "labels": {"new": "label"}}


async def test_a_conversion_that_takes_too_long_fails_before_the_api_server_gives_up() -> None:
    class Slow(OldAppConverter):
        def from_hub(self, resource: App) -> OldApp:
            time.sleep(0.03)
            return super().from_hub(resource)

    body = {"request": {"uid": "c-1", "desiredAPIVersion": "example.com/v1alpha1", "objects": [NEW] * 100}}
    request = msgspec.convert(body, ConversionReview)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counter = asyncio.create_task(count_turns())
    reply = await Conversions([Slow()]).review(request, limit=0.1)
    counter.cancel()
    result = reply["response"]["result"]
    assert result["status"] == "Failure"
    assert "of 100 objects were converted to example.com/v1alpha1 within 0.1 s" in result["message"]
    assert turns >= 1, "the event loop gets its turns meanwhile"
