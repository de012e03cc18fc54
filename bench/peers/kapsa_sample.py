"""The Kapsa operators of the comparison.

Run: `kapsa run kapsa_sample:status` or `kapsa run kapsa_sample:owned`.
"""

from __future__ import annotations

from typing import Any

from kapsa.runtime import Context, Controller, CustomResource, Operator, Spec, Status


class SampleSpec(Spec):
    value: int


class SampleStatus(Status):
    value: int = 0


class Sample(CustomResource[SampleSpec, SampleStatus], group="bench.kapsa.dev", version="v1"):
    """One number to copy from spec to status."""


class StatusController(Controller[Sample]):
    max_concurrent_reconciles = 32

    async def reconcile(self, sample: Sample, ctx: Context[Sample]) -> None:
        ctx.status.value = sample.spec.value


class OwnedController(Controller[Sample]):
    owns = ("apps/v1/Deployment", "v1/Service")
    max_concurrent_reconciles = 32

    async def reconcile(self, sample: Sample, ctx: Context[Sample]) -> None:
        await ctx.apply(deployment(sample.metadata.name))
        await ctx.apply(service(sample.metadata.name))
        ctx.status.value = sample.spec.value


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    containers = [{"name": "app", "image": "example.com/app:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 80, "targetPort": 80}]},
    }


status = Operator(controllers=[StatusController()])
owned = Operator(controllers=[OwnedController()])
