"""Controllers: when resources run, how often, and what follows from the result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster.faults import Answer, FaultPlan, FaultRule
from kapsa.runtime import (
    Backoff,
    Cache,
    Change,
    Context,
    Controller,
    Key,
    Operator,
    Owns,
    Requeue,
    StoredObject,
    TerminalError,
    Watch,
    custom_resource_definitions,
    generation_changed,
    label_changed,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


async def start(harness: Harness, *controllers: Controller[Any], **options: Any) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=controllers, **options))


async def test_every_resource_there_is_runs_at_start(harness: Harness) -> None:
    await harness.install(App)
    await harness.apply(app("a"), app("b"))
    controller = Recorder()
    await start(harness, controller)
    await harness.settle()
    assert sorted(controller.runs) == ["a", "b"]


async def test_a_change_overtakes_the_list_at_start(harness: Harness) -> None:
    async def slowly(resource: App, ctx: Context[App]) -> None:
        await asyncio.sleep(1)

    await harness.install(App)
    await harness.apply(*(app(f"listed-{number:02}") for number in range(40)))
    controller = Recorder(slowly)
    await start(harness, controller)
    await harness.clock.sleep(5)
    await harness.apply(app("listed-39", image="httpd"))
    await harness.clock.sleep(3)
    assert "listed-39" in controller.runs[:9], controller.runs


async def test_a_change_runs_the_resource_and_nothing_runs_without_one(harness: Harness) -> None:
    controller = Recorder()
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await harness.apply(app("a", image="httpd"))
    await harness.settle()
    assert controller.runs == ["a"]
    controller.runs.clear()
    await harness.clock.sleep(3600)
    assert controller.runs == []


async def test_an_event_during_reconcile_causes_exactly_one_more_run(harness: Harness) -> None:
    seen: list[str] = []

    async def slowly(resource: App, ctx: Context[App]) -> None:
        seen.append(resource.spec.image)
        await asyncio.sleep(10)

    controller = Recorder(slowly)
    await start(harness, controller)
    await harness.apply(app("a", image="first"))
    await harness.clock.sleep(5)
    for image in ("second", "third", "fourth"):
        await harness.apply(app("a", image=image))
    await harness.settle()
    assert seen == ["first", "fourth"]


async def test_a_childs_event_during_reconcile_causes_exactly_one_more_run(harness: Harness) -> None:
    """No conflict on the resource itself can cause the second run here."""
    seen: list[Any] = []

    async def slowly(resource: App, ctx: Context[App]) -> None:
        child = ctx.get("v1/ConfigMap", "settings")
        seen.append(child and child["data"])
        await asyncio.sleep(10)

    watch = Watch("v1/ConfigMap", map=lambda stored: [(stored.namespace, "a")])
    await start(harness, Recorder(slowly, watches=[watch]))
    await harness.settle()
    await harness.apply(app("a"))
    await harness.clock.sleep(5)
    for value in ("first", "second"):
        await harness.apply(config_map("settings", data={"is": value}, namespace="default"))
    await harness.settle()
    assert seen == [None, {"is": "second"}]


async def test_one_resource_never_has_two_runs_at_a_time_and_others_do(harness: Harness) -> None:
    running: set[str] = set()
    together: list[int] = []

    async def slowly(resource: App, ctx: Context[App]) -> None:
        assert resource.name not in running
        running.add(resource.name)
        together.append(len(running))
        await asyncio.sleep(5)
        running.remove(resource.name)

    await start(harness, Recorder(slowly, max_concurrent_reconciles=3))
    for round_ in range(3):
        for name in ("a", "b", "c", "d"):
            await harness.apply(app(name, replicas=round_))
        await harness.clock.sleep(1)
    await harness.settle()
    assert max(together) == 3


async def test_its_own_status_write_causes_no_run(harness: Harness) -> None:
    async def count(resource: App, ctx: Context[App]) -> None:
        ctx.status.ready = resource.status.ready + 1

    controller = Recorder(count)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    assert controller.runs == ["a"]
    assert (await harness.get(App, "a")).status.ready == 1


async def test_a_status_write_of_one_controller_runs_another_of_the_same_kind(harness: Harness) -> None:
    async def write(resource: App, ctx: Context[App]) -> None:
        ctx.status.ready = resource.spec.replicas

    writer, other = Recorder(write, name="writer"), Recorder(name="other")
    await start(harness, writer, other)
    await harness.apply(app("a"))
    await harness.settle()
    assert writer.runs == ["a"]
    assert other.runs.count("a") == 2, (
        "after the creation, and after the status write of the other controller"
    )


async def test_a_change_by_another_manager_between_two_own_writes_causes_one_more_run(
    harness: Harness,
) -> None:
    async def write_twice(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map("a", data={"image": "first"}))
        if len(controller.runs) == 1:
            patch = {"data": {"extra": "1"}}
            await harness.client.patch("v1/ConfigMap", "a", patch, namespace="default")
        await ctx.apply(config_map("a", data={"image": "second"}))

    controller = Recorder(write_twice, owns=("v1/ConfigMap",))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    assert controller.runs == ["a", "a"]


async def test_a_child_with_a_generated_name_causes_no_further_run_of_its_owner(harness: Harness) -> None:
    async def create(resource: App, ctx: Context[App]) -> None:
        if not ctx.children("v1/ConfigMap"):
            child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}
            await ctx.create(child)

    controller = Recorder(create, owns=("v1/ConfigMap",))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_key_that_always_fails_backs_off_while_others_run(harness: Harness) -> None:
    async def fail_for_bad(resource: App, ctx: Context[App]) -> None:
        if resource.name == "bad":
            raise RuntimeError("no")
        ctx.status.ready = 1

    controller = Recorder(fail_for_bad, retry_backoff=Backoff(initial=5, max=300))
    await start(harness, controller)
    await harness.apply(app("bad"), *(app(f"good-{number}") for number in range(5)))
    await harness.clock.sleep(100)
    assert controller.runs.count("bad") == 5, "after 0, 5, 15, 35 and 75 seconds"
    for number in range(5):
        assert controller.runs.count(f"good-{number}") == 1
        assert (await harness.get(App, f"good-{number}")).status.ready == 1


async def test_success_starts_the_back_off_from_the_beginning(harness: Harness) -> None:
    fail = True

    async def sometimes(resource: App, ctx: Context[App]) -> None:
        if fail:
            raise RuntimeError("no")

    controller = Recorder(sometimes, retry_backoff=Backoff(initial=5, max=300))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.clock.sleep(40)
    fail = False
    await harness.settle()
    fail = True
    controller.runs.clear()
    await harness.apply(app("a", replicas=2))
    await harness.clock.sleep(6)
    assert len(controller.runs) == 2, "at once, and five seconds later"


async def test_a_reconcile_that_hangs_is_cancelled_and_delays_no_other(harness: Harness) -> None:
    async def hang_for_bad(resource: App, ctx: Context[App]) -> None:
        if resource.name == "bad":
            await asyncio.Event().wait()
        ctx.status.ready = 1

    controller = Recorder(hang_for_bad, reconcile_timeout=60, max_concurrent_reconciles=2)
    await start(harness, controller)
    await harness.apply(app("bad"), app("good"))
    await harness.clock.sleep(30)
    assert (await harness.get(App, "good")).status.ready == 1
    await harness.clock.sleep(40)
    assert controller.runs.count("bad") == 2, "cancelled after a minute, then retried"
    run = harness.running["operator"]
    assert (
        'controller_reconciliations_total{controller="app",result="timeout"} 1.0'
        in run.metrics.render().decode()
    )


async def test_one_controllers_failure_never_stops_another(harness: Harness) -> None:
    async def explode(resource: App, ctx: Context[App]) -> None:
        raise RuntimeError("no")

    bad, good = Recorder(explode, name="bad"), Recorder(name="good")
    await start(harness, bad, good)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("b"))
    await harness.settle()
    assert good.runs == ["a", "b"]


async def test_a_requeue_runs_after_its_time_and_earlier_on_an_event(harness: Harness) -> None:
    moments: list[float] = []

    async def come_back(resource: App, ctx: Context[App]) -> Requeue:
        moments.append(harness.clock.monotonic())
        return Requeue(after=100)

    await start(harness, Recorder(come_back))
    await harness.apply(app("a"))
    await harness.clock.sleep(150)
    await harness.apply(app("a", replicas=2))
    await harness.clock.sleep(120)
    first = moments[0]
    assert [round(moment - first) for moment in moments] == [0, 100, 150, 250]


async def test_a_terminal_error_is_not_retried_until_the_resource_changes(harness: Harness) -> None:
    async def refuse(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))
        if resource.spec.replicas > 10:
            raise TerminalError("more than 10 replicas")

    controller = Recorder(refuse, owns=["v1/ConfigMap"])
    await start(harness, controller)
    await harness.apply(app("a", replicas=11))
    await harness.settle()
    assert controller.runs == ["a"]
    await harness.client.patch("v1/ConfigMap", "a", {"data": {"by": "somebody"}}, namespace="default")
    await harness.settle()
    assert controller.runs == ["a"], "a change of a child does not run it"
    await harness.assert_event("TerminalError", text="more than 10 replicas", name="a")
    await harness.apply(app("a", replicas=3))
    await harness.settle()
    assert controller.runs == ["a", "a"]


async def test_a_childs_change_runs_the_owner_its_controller_reference_names(harness: Harness) -> None:
    async def make_child(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))

    controller = Recorder(make_child, owns=["v1/ConfigMap"])
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.patch("v1/ConfigMap", "b", {"data": {"more": "1"}}, namespace="default")
    await harness.settle()
    assert controller.runs == ["b"]
    controller.runs.clear()
    await harness.client.delete("v1/ConfigMap", "a", namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]
    assert await harness.get("v1/ConfigMap", "a") is not None


async def test_an_owner_of_another_kind_with_the_same_name_is_not_ours(harness: Harness) -> None:
    controller = Recorder(owns=["v1/ConfigMap"])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    boss = await harness.client.create(config_map("a"), namespace="default")
    uid = boss["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid, "controller": True}
    await harness.client.create(config_map("x", ownerReferences=[owner]), namespace="default")
    await harness.settle()
    assert controller.runs == []


async def test_a_watch_maps_the_old_and_the_new_object(harness: Harness) -> None:
    def named_in_labels(stored: StoredObject) -> list[Key]:
        return [Key("default", stored.labels["for"])] if "for" in stored.labels else []

    controller = Recorder(watches=[Watch("v1/ConfigMap", named_in_labels)])
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.client.create(config_map("x", labels={"for": "a"}), namespace="default")
    await harness.settle()
    controller.runs.clear()
    await harness.client.patch(
        "v1/ConfigMap", "x", {"metadata": {"labels": {"for": "b"}}}, namespace="default"
    )
    await harness.settle()
    assert sorted(controller.runs) == ["a", "b"]


async def test_a_map_can_look_up_resources_in_the_cache(harness: Harness) -> None:
    def users(changed: StoredObject, cache: Cache) -> list[Key]:
        return [each.key for each in cache.by_index(App, "image", changed.name)]

    controller = Recorder(
        watches=[Watch("v1/ConfigMap", users)],
        indexes={"image": lambda stored: [stored.to_dict()["spec"]["image"]]},
    )
    await start(harness, controller)
    await harness.apply(app("a", image="one"), app("b", image="two"), app("c", image="one"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.create(config_map("one"), namespace="default")
    await harness.settle()
    assert sorted(controller.runs) == ["a", "c"]


async def test_a_map_made_in_a_loop_does_not_get_the_cache(harness: Harness) -> None:
    watches: list[Watch] = []
    for kind, name in (("v1/ConfigMap", "a"), ("v1/Secret", "b")):

        def concerned(stored: StoredObject, name: str = name) -> list[tuple[str, str]]:
            return [(stored.namespace, name)]

        watches.append(Watch(kind, map=concerned))
    controller = Recorder(watches=watches)
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.create(config_map("x"), namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_an_index_that_fails_for_one_object_still_lists_the_others(harness: Harness) -> None:
    listed: list[str] = []

    async def look(resource: App, ctx: Context[App]) -> None:
        listed[:] = [each.name for each in ctx.find(App, "team", "blue")]

    def team_of(stored: StoredObject) -> list[str]:
        return [stored.labels["team"]]

    await start(harness, Recorder(look, indexes={"team": team_of}))
    await harness.apply(app("a", labels={"team": "blue"}), app("b"), app("c", labels={"team": "blue"}))
    await harness.settle()
    assert listed == ["a", "c"]


async def test_a_controller_does_not_wait_for_an_optional_kind_and_watches_it_once_it_is_served(
    harness: Harness,
) -> None:
    late: Any = "example.com/v1/Late"
    watch = Watch(late, map=lambda stored: [(stored.namespace, "web")], optional=True)
    controller = Recorder(watches=[watch])
    await start(harness, controller)
    await harness.apply(app())
    await harness.settle()
    assert controller.runs == ["web"]
    (definition,) = custom_resource_definitions([App])
    names = {"kind": "Late", "plural": "lates", "singular": "late"}
    await harness.apply(
        {
            **definition,
            "metadata": {"name": "lates.example.com"},
            "spec": {**definition["spec"], "names": names},
        }
    )
    await harness.apply({**app("any"), "kind": "Late"})
    await harness.clock.sleep(120)
    assert controller.runs == ["web", "web"]


async def test_predicates_decide_which_changes_cause_a_run(harness: Harness) -> None:
    asked: list[Change] = []

    def curious(change: Change) -> bool:
        asked.append(change)
        return True

    controller = Recorder(predicates=[generation_changed, curious])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.patch(App, "a", {"metadata": {"labels": {"x": "y"}}}, namespace="default")
    await harness.client.patch(App, "a", {"status": {"ready": 7}}, namespace="default", subresource="status")
    await harness.settle()
    assert controller.runs == []
    await harness.apply(app("a", replicas=4))
    await harness.settle()
    assert controller.runs == ["a"]
    assert asked[-1].old is not None
    assert asked[-1].new is not None


async def test_a_label_predicate_on_children(harness: Harness) -> None:
    async def make_child(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))

    controller = Recorder(make_child, owns=[Owns("v1/ConfigMap", predicates=(label_changed("tier"),))])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.patch("v1/ConfigMap", "a", {"metadata": {"labels": {"x": "y"}}}, namespace="default")
    await harness.settle()
    assert controller.runs == []
    await harness.client.patch(
        "v1/ConfigMap", "a", {"metadata": {"labels": {"tier": "y"}}}, namespace="default"
    )
    await harness.settle()
    assert controller.runs == ["a"]


async def test_only_resources_with_the_declared_labels_run(harness: Harness) -> None:
    controller = Recorder(labels={"team": "red"})
    await start(harness, controller)
    await harness.apply(app("a", labels={"team": "red"}), app("b", labels={"team": "blue"}))
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_watch_can_be_narrowed_to_a_field(harness: Harness) -> None:
    def concerned(stored: StoredObject) -> list[tuple[str, str]]:
        return [(stored.namespace, "a")]

    watch = Watch("v1/ConfigMap", map=concerned, fields="metadata.name=settings")
    controller = Recorder(watches=[watch])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.create(config_map("other"), namespace="default")
    await harness.settle()
    assert controller.runs == []
    await harness.client.create(config_map("settings"), namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_only_the_declared_namespaces_are_watched(harness: Harness) -> None:
    for name in ("shop", "bank"):
        await harness.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    controller = Recorder()
    await start(harness, controller, namespaces=["shop", "default"])
    await harness.apply(app("a", namespace="shop"), app("b", namespace="bank"), app("c"))
    await harness.settle()
    assert sorted(controller.runs) == ["a", "c"]


async def test_a_resync_runs_all_resources_again(harness: Harness) -> None:
    controller = Recorder(resync=600.0)
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.clock.sleep(1900)
    assert sorted(controller.runs) == ["a"] * 4 + ["b"] * 4


async def test_a_conflict_storm_ends_in_the_newest_state(harness: Harness, faults: FaultPlan) -> None:
    async def observe(resource: App, ctx: Context[App]) -> None:
        ctx.status.ready = resource.spec.replicas

    controller = Recorder(observe)
    await start(harness, controller)
    storm = faults.add(
        FaultRule(action=Answer(code=409, reason="Conflict"), verb="patch", resource="apps/status", times=20)
    )
    await harness.apply(app("a", replicas=1), app("calm", replicas=1))
    for replicas in range(2, 12):
        await harness.apply(app("a", replicas=replicas))
        await harness.clock.sleep(0.05)
    await harness.settle()
    assert storm.fired == 20
    stored = await harness.get(App, "a")
    assert stored.status.ready == 11
    assert stored.status.observed_generation == stored.metadata.generation
    assert (await harness.get(App, "calm")).status.ready == 1


async def test_a_status_made_from_an_old_spec_never_overwrites_a_newer_one(harness: Harness) -> None:
    async def slowly(resource: App, ctx: Context[App]) -> None:
        ctx.status.ready = resource.spec.replicas
        if resource.spec.replicas == 1:
            await asyncio.sleep(10)

    await start(harness, Recorder(slowly))
    await harness.apply(app("a", replicas=1))
    await harness.clock.sleep(5)
    await harness.apply(app("a", replicas=2))
    await harness.settle()
    assert [call.status for call in harness.writes()] == [409, 200], (
        "the write of the outdated run was rejected"
    )
    assert (await harness.get(App, "a")).status.ready == 2


def test_a_controller_without_a_kind_is_rejected() -> None:
    class Nothing(Controller[Any]):
        pass

    with pytest.raises(TypeError, match="Nothing has no kind: subclass Controller"):
        Nothing()


def test_a_negative_requeue_is_rejected() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Requeue(after=-1)


async def test_a_controller_of_a_built_in_kind_gets_dicts(harness: Harness) -> None:
    seen: list[str] = []

    class Namespaces(Controller[dict[str, Any]]):
        resource = "v1/Namespace"

        async def reconcile(self, resource: dict[str, Any], ctx: Context[dict[str, Any]]) -> None:
            seen.append(resource["metadata"]["name"])

    await harness.start(Operator(controllers=[Namespaces()]))
    await harness.settle()
    assert "default" in seen


async def test_a_controller_of_labelled_resources_runs_no_others_that_another_controller_watches(
    harness: Harness,
) -> None:
    class Everything(Recorder):
        name = "everything"

    some = Recorder(
        labels={"team": "blue"}, watches=[Watch("v1/ConfigMap", lambda _: [("default", "other")])]
    )
    await harness.install(App)
    await harness.apply(app("mine", labels={"team": "blue"}), app("other"))
    await harness.start(Operator(controllers=[Everything(), some]))
    await harness.client.create(config_map("x"), namespace="default")
    await harness.settle()
    assert set(some.runs) == {"mine"}


async def test_the_traceback_of_a_failure_starts_in_the_code_of_the_author(harness: Harness) -> None:
    async def fail(resource: App, ctx: Context[App]) -> None:
        raise ValueError("broken")

    with capture_logs() as logs:
        await start(harness, Recorder(fail))
        await harness.apply(app("a"))
        await harness.clock.sleep(1)
    _, _, traceback = next(line["exc_info"] for line in logs if line["event"] == "reconcile failed")
    assert traceback.tb_frame.f_code.co_name == "reconcile"
