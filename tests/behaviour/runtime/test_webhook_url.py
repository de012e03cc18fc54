"""`kapsa run --webhook-url`, as a process, serves a webhook to an API server, and puts its registration back."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Forbidden, custom_resource_definitions
from kapsa.runtime.operator.entrypoint import load_operator
from tests.eventually import eventually

VALIDATING = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
PROGRAM = """
from kapsa.runtime import Controller, CustomResource, Operator, Spec, Status, ValidatingWebhook, Webhooks, allow, deny

class BoxSpec(Spec):
    size: int = 0

class Box(CustomResource[BoxSpec, Status], group="example.com", version="v1"):
    pass

class BoxController(Controller[Box]):
    async def reconcile(self, box, ctx):
        pass

class BoxValidator(ValidatingWebhook[Box]):
    async def validate(self, request):
        return deny("spec.size: at most 5") if request.object.spec.size > 5 else allow()

operator = Operator(
    controllers=[BoxController()],
    webhooks=Webhooks(BoxValidator(), service="boxes"),
    leader_election="boxes",
    metrics_port=None,
    health_port=None,
)
"""
BOX = {
    "apiVersion": "example.com/v1",
    "kind": "Box",
    "metadata": {"name": "large", "namespace": "default"},
    "spec": {"size": 6},
}


@pytest.mark.timeout(300)
async def test_a_webhook_on_this_machine_refuses_an_object_and_the_registration_is_put_back_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    (tmp_path / "boxes.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "boxes", raising=False)
    operator = load_operator("boxes:operator")
    assert operator.webhooks is not None
    in_the_cluster = {"service": {"name": "boxes", "namespace": "default", "path": "/elsewhere"}}
    async with (
        DevCluster(controllers=False) as cluster,
        Client.connect(kubeconfig=cluster.kubeconfig, field_manager=operator.field_manager) as client,
    ):
        for crd in custom_resource_definitions(operator.resources):
            await client.create(crd)
        await client.apply(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {
                    "name": operator.name,
                    "labels": {"app.kubernetes.io/managed-by": operator.name},
                },
                "webhooks": [each.registration(in_the_cluster) for each in operator.webhooks.webhooks],
            }
        )
        before = (await client.get(VALIDATING, operator.name))["webhooks"]

        async def refusal() -> str:
            try:
                await client.create(BOX, dry_run=True)
            except Forbidden as error:
                return str(error)
            except Exception as error:  # until the CRD is served, and the process has registered itself
                return type(error).__name__
            return ""

        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from kapsa.cli import main; main()", "run", "boxes:operator"),
            *(f"--kubeconfig={cluster.kubeconfig}", f"--webhook-url=https://127.0.0.1:{unused_tcp_port}"),
            f"--webhook-port={unused_tcp_port}",
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await eventually(refusal, lambda text: "spec.size: at most 5" in text, "a refusal by the webhook")
            (meanwhile,) = (await client.get(VALIDATING, operator.name))["webhooks"]
            assert meanwhile["clientConfig"]["url"].startswith(f"https://127.0.0.1:{unused_tcp_port}/")
            program.send_signal(signal.SIGTERM)
            _, printed = await asyncio.wait_for(program.communicate(), 60)
            assert program.returncode == 0, printed.decode()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        after = await client.get(VALIDATING, operator.name)
    assert after["webhooks"] == before
    assert "kapsa.dev/replaced-registration" not in after["metadata"].get("annotations", {})
