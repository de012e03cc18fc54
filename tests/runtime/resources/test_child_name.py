"""Names of children that follow from their owner."""

import re
from typing import Any

import pytest

from kapsa.runtime import ObjectMeta, Operator, Requeue, child_name
from kapsa.runtime.testing import Scenario, crash_at_every_write
from tests.runtime.sample_app import App, Context, Recorder, app, config_map


def owner(name: str = "web", uid: str = "u-1") -> App:
    return App(metadata=ObjectMeta(name=name, namespace="default", uid=uid), spec=App.spec_type())


def test_the_same_parts_give_the_same_name() -> None:
    assert child_name(owner(), "run", 7) == child_name(owner(), "run", "7")
    assert child_name(owner(), "run", 7).startswith("web-")


@pytest.mark.parametrize(
    "other",
    [
        child_name(owner(), "run", 8),
        child_name(owner(), "run/7"),
        child_name(owner(), "ru", "n7"),
        child_name(owner(uid="u-2"), "run", 7),
        child_name(owner("web2"), "run", 7),
    ],
    ids=["another part", "joined parts", "parts cut elsewhere", "recreated owner", "another owner"],
)
def test_anything_else_gives_another_name(other: str) -> None:
    assert other != child_name(owner(), "run", 7)


@pytest.mark.parametrize("name", ["a", "a.b.c", "x" * 253, "x" * 51 + "-y", "x" * 51 + ".y"])
@pytest.mark.parametrize("length", [12, 52, 63])
def test_a_name_is_a_valid_label_of_at_most_the_given_length(name: str, length: int) -> None:
    made = child_name(owner(name), max_length=length)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= length


def test_a_length_without_room_for_the_hash_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_length must be at least 12, got 11"):
        child_name(owner(), max_length=11)


class OneChildPerGeneration(Recorder):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(child_name(resource, resource.metadata.generation)))
        return None


async def prepare(harness: Any) -> None:
    await harness.install(App)
    await harness.apply(app())


async def change(harness: Any) -> None:
    await harness.apply(app(replicas=2))


@pytest.mark.virtual_time
async def test_a_crash_at_any_write_creates_no_child_twice() -> None:
    scenario = Scenario(
        operator=lambda: Operator(controllers=[OneChildPerGeneration()]), prepare=prepare, steps=[change]
    )
    report = await crash_at_every_write(scenario)
    assert not report.failures, report
