"""Kubernetes' own kinds as typed classes, on both engines."""

from __future__ import annotations

import uuid

from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Service

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Context, Operator, Requeue, custom_resource_definition
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app


class TypedController(Recorder):
    owns = (Service, ConfigMap)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        ports = [ServicePort(port=80, targetPort="http")]
        await ctx.apply(Service(metadata=ObjectMeta(name=resource.name), spec=ServiceSpec(ports=ports)))
        await ctx.apply(
            ConfigMap(metadata=ObjectMeta(name=resource.name), data={"image": resource.spec.image})
        )
        service = ctx.get(Service, resource.name)
        assert service is not None
        assert service.spec is not None
        self.runs.append(f"{service.spec.clusterIP} {len(ctx.children(ConfigMap))}")
        ctx.status.ready = len(service.spec.ports or ())
        return None


async def test_children_of_typed_kinds_are_applied_once_and_read_back_with_defaults(
    cluster: DevCluster,
) -> None:
    namespace = f"typed-{uuid.uuid4().hex[:8]}"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.apply(custom_resource_definition([App]), force=True)
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        controller = TypedController()
        operator = Operator(controllers=[controller], metrics_port=None, health_port=None, check_rights=False)
        writes: list[str] = []
        client.observe(
            lambda call, *_: writes.append(f"{call.verb} {call.resource}") if call.writes else None
        )
        async with operator.running(client, namespaces=[namespace]) as run:
            await run.wait_until_synced()
            await client.create(app(namespace=namespace))

            async def ready() -> int:
                return (await client.get(App, "web", namespace=namespace)).status.ready

            await eventually(ready, lambda count: count == 1, "a status from the typed Service", seconds=120)
        service = await client.get(Service, "web", namespace=namespace)
    assert service.spec is not None
    assert service.spec.ports is not None
    assert (service.spec.ports[0].targetPort, service.spec.ports[0].protocol) == ("http", "TCP")
    assert controller.runs[0].endswith(" 1")
    assert writes.count("patch services") == 1
    assert writes.count("patch configmaps") == 1
