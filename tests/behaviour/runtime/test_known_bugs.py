"""Typical bugs of operators: the sweeps must detect each, and pass the operator without it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kapsa.runtime import Context, Operator, Owns, Requeue
from kapsa.runtime.testing import (
    Harness,
    Scenario,
    SweepReport,
    crash_at_every_write,
    miss_every_step,
    restart_in_every_past,
)
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(300)]

CLAIM = "v1/PersistentVolumeClaim"
STATEFUL_SET = "apps/v1/StatefulSet"


def scenario(controller: type[Recorder], *specs: Mapping[str, Any]) -> Scenario:
    """Return a scenario that creates an app, then changes it to each further spec.

    `labels` go to its metadata.
    """

    async def prepare(harness: Harness) -> None:
        await harness.install(App)

    def apply(spec: Mapping[str, Any]) -> Any:
        return lambda harness: harness.apply(app("web", **spec))

    return Scenario(
        operator=lambda: Operator(controllers=[controller()]),
        prepare=prepare,
        steps=[apply(spec) for spec in specs],
        ignore=["controllerrevisions"],  # a history of the steps, not part of the state
    )


def claim(name: str, size: int = 1) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{size}Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def stateful_set(name: str, replicas: int, **annotations: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


# -- a stale read deletes a live volume ----------------------------------------------------------------------


class KeepsVolume(Recorder):
    owns = (Owns(CLAIM, deletes=True),)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        if resource.spec.replicas == 0:
            await self.remove(resource, ctx)
        else:
            await ctx.apply(claim(resource.name))
        return None

    async def remove(self, resource: App, ctx: Context[App]) -> None:
        await ctx.delete(CLAIM, resource.name)


class DeletesLiveVolume(KeepsVolume):
    """A controller that deletes by name alone, so possibly a newer volume."""

    async def remove(self, resource: App, ctx: Context[App]) -> None:
        await ctx.client.delete(CLAIM, resource.name, namespace="default", missing_ok=True)


# -- a stale read scales down --------------------------------------------------------------------------------


class Scales(Recorder):
    owns = (STATEFUL_SET,)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(stateful_set(resource.name, resource.spec.replicas))
        return None


class ScalesDown(Recorder):
    """A controller that scales to the number of an outdated spec, and ignores the current state."""

    owns = (STATEFUL_SET,)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        if ctx.get(STATEFUL_SET, resource.name) is None:
            await ctx.apply(stateful_set(resource.name, resource.spec.replicas))
        await ctx.client.scale(STATEFUL_SET, resource.name, resource.spec.replicas, namespace="default")
        return None


# -- a config change is never reloaded -----------------------------------------------------------------------


class Reloads(Recorder):
    owns = ("v1/ConfigMap", STATEFUL_SET)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))
        await ctx.apply(stateful_set(resource.name, 1, config=self.digest(resource, ctx)))
        return None

    def digest(self, resource: App, ctx: Context[App]) -> str:
        return hashlib.sha256(resource.spec.image.encode()).hexdigest()


class NeverReloads(Reloads):
    """A controller that computes the digest of the config once, so pods keep their first config."""

    def digest(self, resource: App, ctx: Context[App]) -> str:
        current = ctx.get(STATEFUL_SET, resource.name)
        if current is not None:
            return str(current["spec"]["template"]["metadata"]["annotations"]["config"])
        return super().digest(resource, ctx)


# -- a removed label is never removed downstream -------------------------------------------------------------


class Labels(Recorder):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(resource.name, labels=dict(resource.metadata.labels)))
        return None


class NeverUnlabels(Labels):
    """A controller that merges the desired labels into the current ones."""

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        current = ctx.get("v1/ConfigMap", resource.name)
        labels = {} if current is None else current["metadata"].get("labels", {})
        await ctx.apply(config_map(resource.name, labels={**labels, **resource.metadata.labels}))
        return None


# -- the fallback to an update forgets one child -------------------------------------------------------------


class UpdatesBoth(Recorder):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        for name in (resource.name, f"{resource.name}-more"):
            await ctx.apply(config_map(name, data={"image": resource.spec.image}))
        return None


class ForgetsOneChild(Recorder):
    """A controller that creates both, but updates only the first if it exists already."""

    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        data = {"image": resource.spec.image}
        if ctx.get("v1/ConfigMap", resource.name) is not None:
            await ctx.apply(config_map(resource.name, data=data))
            return None
        await ctx.apply(config_map(resource.name, data=data))
        await ctx.apply(config_map(f"{resource.name}-more", data=data))
        return None


# -- a crash in the middle of a resize leaves it unfinished --------------------------------------------------


class Resizes(Recorder):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        size = str(resource.spec.replicas)
        await ctx.apply(config_map(f"{resource.name}-volume", data={"size": size}))
        await ctx.apply(config_map(f"{resource.name}-filesystem", data={"size": size}))
        return None


class LeavesResizeUnfinished(Recorder):
    """A controller that grows the file system only in the run that has grown the volume."""

    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        size = str(resource.spec.replicas)
        volume = ctx.get("v1/ConfigMap", f"{resource.name}-volume")
        if volume is None or volume["data"]["size"] != size:
            await ctx.apply(config_map(f"{resource.name}-volume", data={"size": size}))
            await ctx.apply(config_map(f"{resource.name}-filesystem", data={"size": size}))
        return None


Sweep = Callable[[Scenario], Any]
BUGS: dict[str, tuple[Sweep, type[Recorder], type[Recorder], Sequence[Mapping[str, Any]], str]] = {
    "a stale read deletes a live volume": (
        *(restart_in_every_past, DeletesLiveVolume, KeepsVolume, [{"replicas": 0}, {"replicas": 2}]),
        "persistentvolumeclaims default/web was created 2 times instead of 1",
    ),
    "a stale read scales down": (
        *(restart_in_every_past, ScalesDown, Scales, [{"replicas": 1}, {"replicas": 3}]),
        "pods default/web-1 was created 2 times instead of 1",
    ),
    "a config change is never reloaded": (
        *(miss_every_step, NeverReloads, Reloads, [{"image": "a"}, {"image": "b"}]),
        "config ended as",
    ),
    "a removed label is never removed downstream": (
        *(miss_every_step, NeverUnlabels, Labels, [{"labels": {"team": "blue"}}, {"labels": {}}]),
        "labels ended as None instead of {'team': 'blue'}",
    ),
    "the fallback to an update forgets one child": (
        *(miss_every_step, ForgetsOneChild, UpdatesBoth, [{"image": "a"}, {"image": "b"}]),
        "configmaps default/web-more: .data.image ended as b instead of a",
    ),
    "a crash in the middle of a resize leaves it unfinished": (
        *(crash_at_every_write, LeavesResizeUnfinished, Resizes, [{"replicas": 1}, {"replicas": 2}]),
        "configmaps default/web-filesystem: .data.size ended as 1 instead of 2",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
async def test_a_known_bug_is_detected(bug: str) -> None:
    sweep, wrong, _, specs, finding = BUGS[bug]
    report: SweepReport = await sweep(scenario(wrong, *specs))
    assert any(finding in why for why in report.failures.values()), str(report)


@pytest.mark.parametrize("bug", BUGS)
async def test_the_operator_without_the_bug_passes(bug: str) -> None:
    sweep, _, right, specs, _ = BUGS[bug]
    report: SweepReport = await sweep(scenario(right, *specs))
    assert not report.failures, str(report)
    assert report.points >= 3
