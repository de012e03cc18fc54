"""The context of a reconcile: applying without needless requests, drift, status, finalizers, cached reads."""

from __future__ import annotations

from typing import Any, assert_type

import msgspec
import pytest

from kapsa.devcluster.faults import Answer, Drop, FaultPlan, FaultRule
from kapsa.runtime import Backoff, Context, Operator, Owns, Quantity, Reads, Requeue
from kapsa.runtime.generate.rbac import grants
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, AppStatus, Recorder, Work, app, config_map

pytestmark = pytest.mark.virtual_time

FINALIZER = "example.com/app"


class Cleaner(Recorder):
    """A controller that cleans up."""

    def __init__(self, work: Work | None = None, clean: Work | None = None, **attributes: Any) -> None:
        super().__init__(work, **attributes)
        self.clean = clean
        self.cleaned: list[str] = []

    async def finalize(self, resource: App, ctx: Context[App]) -> Requeue | None:
        self.cleaned.append(resource.name)
        return await self.clean(resource, ctx) if self.clean is not None else None


async def make_child(resource: App, ctx: Context[App]) -> None:
    await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))


async def start(harness: Harness, controller: Recorder, *, name: str = "operator") -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=[controller], name="my-operator"), name=name)


def without_data(manifest: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in manifest.items() if field != "data"}


def owner(work: Work, **attributes: Any) -> Recorder:
    return Recorder(work, owns=[Owns("v1/ConfigMap", deletes=True)], **attributes)


# -- apply ---------------------------------------------------------------------------------------------------


async def test_a_child_gets_namespace_owner_and_field_manager(harness: Harness) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    child = await harness.get("v1/ConfigMap", "a")
    parent = await harness.get(App, "a")
    assert child["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "example.com/v1",
            "kind": "App",
            "name": "a",
            "uid": parent.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert [entry["manager"] for entry in child["metadata"]["managedFields"]] == ["my-operator"]


async def test_a_converged_operator_writes_nothing_for_ten_minutes(harness: Harness) -> None:
    controller = owner(make_child, resync=10.0)
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.clock.sleep(60)
    calls, runs = len(harness.calls), len(controller.runs)
    await harness.clock.sleep(600)
    assert len(controller.runs) - runs == 120, "it ran that often"
    made = [str(call) for call in harness.calls[calls:]]
    assert [call for call in made if "watch" not in call] == []


async def test_a_restarted_operator_writes_nothing_while_nothing_has_changed(harness: Harness) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    await harness.stop()
    calls = len(harness.writes())
    again = owner(make_child)
    await start(harness, again)
    await harness.settle()
    assert sorted(again.runs) == ["a", "b"]
    assert [str(call) for call in harness.writes()[calls:]] == []


async def test_a_change_of_fields_that_are_not_ours_causes_no_request(harness: Harness) -> None:
    controller = owner(make_child)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    writes = len(harness.writes())
    await harness.client.patch("v1/ConfigMap", "a", {"data": {"more": "1"}}, namespace="default")
    await harness.settle()
    assert controller.runs == ["a", "a"]
    assert len(harness.writes()) == writes
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx", "more": "1"}


async def test_a_child_changed_by_hand_is_reverted_and_the_event_names_the_manager(harness: Harness) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.patch(
        "v1/ConfigMap", "a", {"data": {"image": "evil"}}, namespace="default", field_manager="kubectl-edit"
    )
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx"}
    event = await harness.assert_event("DriftCorrected", name="a")
    assert event["note"] == "ConfigMap a: kubectl-edit changed .data.image; reverted"
    metrics = harness.running["operator"].metrics.render().decode()
    assert 'controller_drift_total{controller="app",kind="ConfigMap"} 1.0' in metrics


async def test_a_change_made_while_no_operator_ran_is_reverted_and_the_event_names_the_manager(
    harness: Harness,
) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    await harness.stop()
    await harness.client.patch(
        "v1/ConfigMap", "a", {"data": {"image": "evil"}}, namespace="default", field_manager="kubectl-edit"
    )
    await start(harness, owner(make_child))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx"}
    notes = [event["note"] for event in await harness.events(reason="DriftCorrected")]
    assert notes == ["ConfigMap a: kubectl-edit changed .data.image; reverted"]


async def test_a_desired_state_that_changed_with_a_restart_is_not_drift_and_costs_no_read(
    harness: Harness,
) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.stop()
    await harness.client.patch("v1/ConfigMap", "a", {"data": {"extra": "1"}}, namespace="default")
    await harness.apply(app("a", image="httpd"))
    before = len(harness.calls)
    await start(harness, owner(make_child))
    await harness.settle()
    made = [(made.call.verb, made.call.resource) for made in harness.calls[before:]]
    assert ("patch", "configmaps") in made
    assert ("get", "configmaps") not in made
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "httpd", "extra": "1"}
    assert await harness.events(reason="DriftCorrected") == []


async def test_a_changed_desired_state_is_applied_and_is_not_drift(harness: Harness) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("a", image="httpd"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "httpd"}
    assert await harness.events(reason="DriftCorrected") == []


async def test_what_was_applied_last_can_be_read_and_applied_again_without_a_request(
    harness: Harness,
) -> None:
    seen: list[dict[str, Any] | None] = []

    async def work(resource: App, ctx: Context[App]) -> None:
        seen.append(ctx.applied("v1/ConfigMap", resource.name))
        last = seen[-1]
        await ctx.apply(last if last is not None else config_map(resource.name, data={"image": "nginx"}))

    await start(harness, owner(work))
    await harness.apply(app("a"))
    await harness.settle()
    addition = {"data": {"theirs": "1"}}
    await harness.client.patch("v1/ConfigMap", "a", addition, namespace="default", field_manager="other")
    await harness.settle()
    before = len(harness.writes())
    await harness.apply(app("a", image="two"))
    await harness.settle()
    assert seen[0] is None
    assert seen[-1] is not None
    assert seen[-1]["data"] == {"image": "nginx"}
    assert {each.call.resource for each in harness.writes()[before:]} <= {"apps"}


@pytest.mark.parametrize("first", ["own watch", "other watch"])
async def test_what_was_applied_last_is_whole_while_another_controller_watches_metadata_only(
    harness: Harness, first: str
) -> None:
    async def work(resource: App, ctx: Context[App]) -> None:
        last = ctx.applied("v1/ConfigMap", resource.name)
        await ctx.apply(last if last is not None else config_map(resource.name, data={"image": "nginx"}))

    other = Recorder(name="other", reads=(Reads("v1/ConfigMap", metadata_only=True),))
    controllers = [owner(work), other] if first == "own watch" else [other, owner(work)]
    await harness.install(App)
    await harness.start(Operator(controllers=controllers, name="my-operator"))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("a", image="two"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx"}


@pytest.mark.parametrize("part", [{"metadata_only": True}, {"transform": without_data}])
async def test_what_was_applied_last_is_not_read_from_a_cache_that_keeps_a_part(
    harness: Harness, part: dict[str, Any]
) -> None:
    rejected: list[str] = []

    async def work(resource: App, ctx: Context[App]) -> None:
        with pytest.raises(TypeError, match="Recorder has only part of each ConfigMap in its cache"):
            ctx.applied("v1/ConfigMap", resource.name)
        rejected.append(resource.name)

    await start(harness, Recorder(work, owns=(Owns("v1/ConfigMap", **part),)))
    await harness.apply(app("a"))
    await harness.settle()
    assert rejected == ["a"]


async def test_a_field_left_out_later_is_removed(harness: Harness) -> None:
    async def labelled(resource: App, ctx: Context[App]) -> None:
        labels = {"image": "yes"} if resource.spec.image == "nginx" else {}
        await ctx.apply(config_map(resource.name, labels=labels))

    await start(harness, owner(labelled))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("a", image="httpd"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["metadata"].get("labels") is None


async def test_children_may_be_yaml_or_structs(harness: Harness) -> None:
    class Meta(msgspec.Struct):
        name: str
        labels: dict[str, str] | None = None

    class Map(msgspec.Struct):
        metadata: Meta
        apiVersion: str = "v1"  # noqa: N815 - as on the wire
        kind: str = "ConfigMap"
        data: dict[str, str] | None = None

    async def both(resource: App, ctx: Context[App]) -> None:
        await ctx.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: from-yaml}, data: {a: '1'}}")
        await ctx.apply(Map(Meta("from-struct"), data={"b": "2"}))

    await start(harness, owner(both))
    await harness.apply(app("a"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "from-yaml"))["data"] == {"a": "1"}
    assert (await harness.get("v1/ConfigMap", "from-struct"))["data"] == {"b": "2"}


async def test_an_object_that_another_resource_controls_is_not_taken_over(harness: Harness) -> None:
    boss = await harness.client.create(config_map("boss"), namespace="default")
    uid = boss["metadata"]["uid"]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": uid, "controller": True}
    await harness.client.create(
        config_map("a", data={"theirs": "1"}, ownerReferences=[other]), namespace="default"
    )
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"theirs": "1"}
    await harness.assert_event(
        "TerminalError", text="ConfigMap default/a is controlled by ConfigMap boss", name="a"
    )


async def test_owning_across_namespaces_is_rejected_with_a_remedy(harness: Harness) -> None:
    errors: list[str] = []

    async def elsewhere(resource: App, ctx: Context[App]) -> None:
        try:
            await ctx.apply(config_map("x", namespace="kube-system"))
        except ValueError as error:
            errors.append(str(error))
        await ctx.apply(config_map("x", namespace="kube-system"), owner=False)

    await start(harness, owner(elsewhere))
    await harness.apply(app("a"))
    await harness.settle()
    assert "Pass owner=False" in errors[0]
    assert (
        "ownerReferences" not in (await harness.get("v1/ConfigMap", "x", namespace="kube-system"))["metadata"]
    )


# -- reading and deleting ------------------------------------------------------------------------------------


async def test_a_reconcile_reads_its_own_writes_from_the_cache_deletes_included(harness: Harness) -> None:
    seen: list[Any] = []

    async def write_and_read(resource: App, ctx: Context[App]) -> None:
        if seen:
            return
        seen.append(ctx.get("v1/ConfigMap", "a"))
        await ctx.apply(config_map("a"))
        seen.append((ctx.get("v1/ConfigMap", "a") or {}).get("data"))
        seen.append([child["metadata"]["name"] for child in ctx.children("v1/ConfigMap")])
        assert await ctx.delete("v1/ConfigMap", "a")
        seen.append(ctx.get("v1/ConfigMap", "a"))
        seen.append(
            [each["metadata"]["name"] for each in ctx.list("v1/ConfigMap", labels="!other")].count("a")
        )
        assert not await ctx.delete("v1/ConfigMap", "a"), "it is deleted already"

    await start(harness, owner(write_and_read))
    await harness.apply(app("a"))
    await harness.settle()
    assert seen == [None, {"image": "nginx"}, ["a"], None, 0]


async def test_a_delete_never_hits_a_later_object_of_the_same_name(harness: Harness) -> None:
    async def delete_what_was_read(resource: App, ctx: Context[App]) -> None:
        read = ctx.get("v1/ConfigMap", "victim")
        if read is None or read["data"] != {"old": "1"}:
            return
        await harness.client.delete("v1/ConfigMap", "victim", namespace="default")
        await harness.client.create(config_map("victim", data={"new": "1"}), namespace="default")
        assert not await ctx.delete(read)

    await harness.client.create(config_map("victim", data={"old": "1"}), namespace="default")
    await start(harness, owner(delete_what_was_read))
    await harness.apply(app("a"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "victim"))["data"] == {"new": "1"}


async def test_a_delete_that_is_refused_with_409_is_tried_again(harness: Harness, faults: FaultPlan) -> None:
    async def delete(resource: App, ctx: Context[App]) -> None:
        if ctx.get("v1/ConfigMap", "refused") is not None:
            await ctx.delete("v1/ConfigMap", "refused")

    await harness.client.create(config_map("refused"), namespace="default")
    refuse = FaultRule(
        action=Answer(code=409, reason="Conflict"), verb="delete", resource="configmaps", times=3
    )
    faults.add(refuse)
    await start(harness, owner(delete))
    await harness.apply(app("a"))
    await harness.settle()
    assert refuse.fired == 3
    assert await harness.get("v1/ConfigMap", "refused") is None


async def test_reading_a_kind_that_is_not_declared_names_the_remedy(harness: Harness) -> None:
    errors: list[str] = []

    async def read(resource: App, ctx: Context[App]) -> None:
        try:
            ctx.get("v1/Secret", "x")
        except LookupError as error:
            errors.append(str(error))

    await start(harness, owner(read))
    await harness.apply(app("a"))
    await harness.settle()
    assert errors[0].startswith("v1/Secret is not watched")
    assert "Declare it in the controller's owns, watches or reads" in errors[0]


async def test_a_change_of_a_kind_that_is_only_read_causes_no_run(harness: Harness) -> None:
    controller = Recorder(reads=["v1/ConfigMap"])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.create(config_map("x"), namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]


# -- status --------------------------------------------------------------------------------------------------


async def test_the_status_is_written_once_and_only_if_it_differs(harness: Harness) -> None:
    async def observe(resource: App, ctx: Context[App]) -> None:
        ctx.status.ready = 1
        ctx.status.ready = resource.spec.replicas
        ctx.condition("Ready", True, reason="Fine", message="all is well")

    await start(harness, Recorder(observe, resync=60.0))
    await harness.apply(app("a", replicas=3))
    await harness.clock.sleep(600)
    assert [str(call) for call in harness.writes()] == ["operator: patch apps/status default/a -> 200"]
    stored = await harness.get(App, "a")
    assert (stored.status.ready, stored.status.observed_generation) == (3, 1)


async def test_a_transition_time_moves_only_when_the_conditions_status_does(harness: Harness) -> None:
    async def observe(resource: App, ctx: Context[App]) -> None:
        ctx.condition(
            "Ready", resource.spec.replicas > 1, reason="Counted", message=str(resource.spec.replicas)
        )

    await start(harness, Recorder(observe))
    await harness.apply(app("a", replicas=2))
    await harness.settle()
    first = await harness.assert_condition(App, "a", "Ready")
    await harness.apply(app("a", replicas=3))
    await harness.settle()
    second = await harness.assert_condition(App, "a", "Ready", reason="Counted")
    assert (second.message, second.observed_generation) == ("3", 2)
    assert second.last_transition_time == first.last_transition_time
    await harness.apply(app("a", replicas=1))
    await harness.settle()
    third = await harness.assert_condition(App, "a", "Ready", "False")
    assert third.last_transition_time > first.last_transition_time


async def test_the_status_of_a_failed_run_is_written_but_not_as_observed(harness: Harness) -> None:
    async def fail(resource: App, ctx: Context[App]) -> None:
        ctx.condition("Ready", False, reason="Broken", message="no luck")
        raise RuntimeError("no")

    await start(harness, Recorder(fail, retry_backoff=Backoff(initial=100, max=100)))
    await harness.apply(app("a"))
    await harness.clock.sleep(1)
    await harness.assert_condition(App, "a", "Ready", "False", reason="Broken")
    assert (await harness.get(App, "a")).status.observed_generation is None


async def test_a_resource_deleted_while_it_runs_is_not_an_error(harness: Harness) -> None:
    async def delete_under_it(resource: App, ctx: Context[App]) -> None:
        await harness.client.delete(App, resource.name, namespace="default")
        ctx.status.ready = 5

    controller = Recorder(delete_under_it)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    assert controller.runs == ["a"]


# -- finalizers ----------------------------------------------------------------------------------------------


async def test_the_finalizer_is_added_before_anything_is_created(harness: Harness, faults: FaultPlan) -> None:
    await start(harness, Cleaner(make_child, owns=["v1/ConfigMap"]))
    await harness.apply(app("a"))
    await harness.settle()
    writes = [f"{record.verb} {record.resource}" for record in faults.writes("operator")]
    assert writes[:2] == ["patch apps", "patch configmaps"]
    assert (await harness.get(App, "a")).metadata.finalizers == (FINALIZER,)


async def test_the_finalizer_is_removed_only_after_the_cleanup(harness: Harness) -> None:
    tries = 0

    async def clean(resource: App, ctx: Context[App]) -> Requeue | None:
        nonlocal tries
        tries += 1
        assert (await harness.get(App, "a")).metadata.finalizers == (FINALIZER,)
        if tries == 1:
            raise RuntimeError("not yet")
        return Requeue(after=10) if tries == 2 else None

    controller = Cleaner(clean=clean)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert tries == 3
    assert await harness.get(App, "a") is None
    assert controller.runs == ["a"], "it is not reconciled while it is being deleted"


async def test_a_finalizer_of_another_controller_is_never_removed(harness: Harness) -> None:
    async def another_goes(resource: App, ctx: Context[App]) -> None:
        left = {"metadata": {"finalizers": [FINALIZER, "last.example.com/x"]}}
        await harness.client.patch(App, "a", left, namespace="default")

    controller = Cleaner(clean=another_goes)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    theirs = {"metadata": {"finalizers": ["first.example.com/x", FINALIZER, "last.example.com/x"]}}
    await harness.client.patch(App, "a", theirs, namespace="default")
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert controller.cleaned == ["a"]
    assert (await harness.get(App, "a")).metadata.finalizers == ("last.example.com/x",)


async def test_a_finalizer_that_was_removed_by_hand_is_added_again_until_the_resource_is_deleted(
    harness: Harness,
) -> None:
    await start(harness, Cleaner())
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.patch(App, "a", {"metadata": {"finalizers": None}}, namespace="default")
    await harness.settle()
    assert (await harness.get(App, "a")).metadata.finalizers == (FINALIZER,)


async def test_a_finalizer_that_was_removed_by_hand_during_cleanup_is_not_an_error(harness: Harness) -> None:
    async def robbed(resource: App, ctx: Context[App]) -> None:
        await harness.client.patch(App, "a", {"metadata": {"finalizers": None}}, namespace="default")

    controller = Cleaner(clean=robbed)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert await harness.get(App, "a") is None
    assert controller.cleaned == ["a"]
    metrics = harness.running["operator"].metrics.render().decode()
    assert 'controller_reconciliations_total{controller="app",result="error"} 0.0' in metrics
    assert 'controller_reconciliations_total{controller="app",result="conflict"} 0.0' in metrics


async def test_another_finalizer_that_is_removed_in_the_meantime_does_not_repeat_the_cleanup(
    harness: Harness,
) -> None:
    """Our finalizer has moved to another position in the list when it is removed."""

    async def others_finish(resource: App, ctx: Context[App]) -> None:
        patch = [{"op": "remove", "path": "/metadata/finalizers/0"}]
        await harness.client.patch(App, "a", patch, type="json", namespace="default")

    await harness.install(App)
    held = app("a")
    held["metadata"]["finalizers"] = ["other.example.com/x"]
    await harness.client.create(held)
    controller = Cleaner(clean=others_finish)
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    assert (await harness.get(App, "a")).metadata.finalizers[0] == "other.example.com/x"
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert await harness.get(App, "a") is None
    assert controller.cleaned == ["a"]


async def test_a_resource_deleted_before_its_first_run_is_not_touched(harness: Harness) -> None:
    await harness.install(App)
    held = app("a")
    held["metadata"]["finalizers"] = ["other.example.com/x"]
    await harness.apply(held)
    await harness.client.delete(App, "a", namespace="default")
    controller = Cleaner()
    await start(harness, controller)
    await harness.settle()
    assert controller.runs == []
    assert controller.cleaned == []


async def test_a_lost_response_to_an_apply_still_leads_to_one_child(
    harness: Harness, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Drop(), verb="patch", resource="configmaps", when="after", times=3))
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx"}
    assert await harness.events(reason="DriftCorrected") == []


async def test_children_cached_as_metadata_only_are_applied_without_false_drift(harness: Harness) -> None:
    controller = Recorder(make_child, owns=[Owns("v1/ConfigMap", metadata_only=True)], resync=60.0)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.clock.sleep(600)
    assert len(harness.writes()) == 2, "the child and the status, once each"
    await harness.client.patch("v1/ConfigMap", "a", {"data": {"image": "evil"}}, namespace="default")
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "a"))["data"] == {"image": "nginx"}
    assert await harness.events(reason="DriftCorrected") == []


async def test_the_record_of_an_apply_is_dropped_with_the_object(harness: Harness) -> None:
    await start(harness, owner(make_child))
    await harness.apply(*(app(f"a{number}") for number in range(20)))
    await harness.settle()
    applier = harness.running["operator"].reconcilers[0].services.applier
    assert len(applier) == 20
    for number in range(20):
        await harness.client.delete(App, f"a{number}", namespace="default")
    await harness.settle()
    assert await harness.get("v1/ConfigMap", "a1") is None
    assert len(applier) == 0


async def test_a_resource_that_deletes_itself_is_finalized(harness: Harness) -> None:
    async def end(resource: App, ctx: Context[App]) -> None:
        await ctx.delete(resource)

    controller = Cleaner(end)
    await start(harness, controller)
    await harness.apply(app())
    await harness.settle()
    assert controller.cleaned == ["web"]
    assert await harness.get(App, "web") is None


async def test_a_controller_that_does_not_declare_deletes_has_no_right_to_and_gets_an_error(
    harness: Harness,
) -> None:
    caught: list[str] = []

    async def work(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))
        try:
            await ctx.delete("v1/ConfigMap", resource.name)
        except TypeError as error:
            caught.append(str(error))

    controller = Recorder(work, owns=["v1/ConfigMap"])
    verbs = {
        verb
        for grant in grants(Operator(controllers=[controller]).rights(), namespace="default")
        for rule in grant.rules
        if "configmaps" in rule.resources
        for verb in rule.verbs
    }
    assert verbs == {"get", "list", "watch", "create", "patch"}
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("web"))
    await harness.settle()
    assert caught == [
        "Recorder declares that it does not delete ConfigMap: write Owns('v1/ConfigMap', deletes=True) in its owns"
    ]
    assert await harness.get("v1/ConfigMap", "web") is not None


async def test_a_type_checker_knows_the_status_fields(harness: Harness) -> None:
    async def work(resource: App, ctx: Context[App]) -> None:
        assert_type(ctx.status, AppStatus)
        ctx.status.ready = 3
        with pytest.raises(AttributeError):
            ctx.status.redy = 4  # type: ignore[attr-defined]  # a slip that no run is needed to find

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(work)]))
    await harness.apply(app("web"))
    await harness.settle()
    assert (await harness.get(App, "web")).status.ready == 3


async def test_a_resource_that_is_created_again_at_once_waits_for_the_old_ones_children_and_gets_its_own(
    harness: Harness,
) -> None:
    await start(harness, owner(make_child))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.delete(App, "a", namespace="default")
    await harness.apply(app("a", image="httpd"))
    await harness.settle()
    child, parent = await harness.get("v1/ConfigMap", "a"), await harness.get(App, "a")
    assert child["data"] == {"image": "httpd"}
    assert [each["uid"] for each in child["metadata"]["ownerReferences"]] == [parent.metadata.uid]


async def test_a_childs_amounts_may_be_quantities(harness: Harness) -> None:
    async def claim(resource: App, ctx: Context[App]) -> None:
        requests = {"storage": Quantity("1Gi") + Quantity("1Gi")}
        await ctx.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": resource.name},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}},
            }
        )

    await start(harness, Recorder(claim, owns=("v1/PersistentVolumeClaim",)))
    await harness.apply(app("a"))
    await harness.settle()
    harness.assert_no_failures()
    made = await harness.get("v1/PersistentVolumeClaim", "a")
    assert made["spec"]["resources"]["requests"] == {"storage": "2Gi"}


async def test_a_child_of_an_unsupported_type_is_rejected_without_its_content(
    harness: Harness,
) -> None:
    class Sealed:
        def __repr__(self) -> str:
            return "password: hunter2"

    async def wrong(resource: App, ctx: Context[App]) -> None:
        with pytest.raises(TypeError, match=r"got Sealed$"):
            await ctx.apply(Sealed())

    await start(harness, owner(wrong))
    await harness.apply(app("a"))
    await harness.settle()
    harness.assert_no_failures()
