"""The namespaces of PreviewEnvironments: their ownership and deletion."""

from __future__ import annotations

import pytest

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.resources import PreviewEnvironment
from kapsa.environments.settings import Settings
from tests.environments.previews import NAMESPACE, Preview, make_operator
from tests.environments.sandbox import Sandbox


async def test_two_pull_requests_live_side_by_side(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    one, two = Preview(sandbox), Preview(sandbox, sandbox.number + 1)
    await one.ask()
    await two.ask(image_tag="other")
    urls = {(await one.ready()).status.url, (await two.ready()).status.url}
    assert len(urls) == 2
    await one.delete()
    await one.gone()
    assert all((await two.children()).values())
    assert (await two.ready()).status.phase == "Ready"


async def test_a_foreign_namespace_is_refused_and_left_alone(sandbox: Sandbox) -> None:
    preview = Preview(sandbox)
    foreign = await sandbox.make_namespace(preview.namespace, tenant="other")
    await sandbox.start(make_operator())
    await preview.ask()
    resource = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    assert resource.status.phase == "Failed"
    assert (
        f"namespace {preview.namespace} already exists and belongs to another owner"
        in resource.status.condition("Ready").message
    )
    assert not any((await preview.children()).values())
    await preview.delete()
    await sandbox.gone(PreviewEnvironment, preview.name)
    kept = await sandbox.get(NAMESPACE, preview.namespace)
    assert kept["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    assert kept["metadata"]["labels"].get("managed-by") is None
    await sandbox.client.delete(NAMESPACE, preview.namespace)


async def test_a_preview_is_made_once_the_foreign_namespace_is_gone(sandbox: Sandbox) -> None:
    preview = Preview(sandbox)
    await sandbox.make_namespace(preview.namespace)
    await sandbox.start(make_operator())
    await preview.ask()
    await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    await sandbox.client.delete(NAMESPACE, preview.namespace)
    await preview.ready()


async def test_a_second_preview_of_one_pull_request_waits_for_the_first(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    first, second = Preview(sandbox), Preview(sandbox, name="again")
    await first.ask()
    await first.ready()
    await second.ask(image_tag="other")
    refused = await sandbox.condition(PreviewEnvironment, "again", "False", reason="NamespaceNotOurs")
    assert f"belongs to {sandbox.namespace}/{first.name}" in refused.status.condition("Ready").message
    assert (await first.ready()).status.image == "youruser/my-app:a3f9c2d"
    await first.delete()
    await sandbox.gone(PreviewEnvironment, first.name)
    assert (await second.ready()).status.image == "youruser/my-app:other"


async def test_a_namespace_that_was_replaced_is_not_ours_whatever_its_labels_say(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    asked = await preview.ask()
    await preview.ready()
    await sandbox.harness.stop()
    await sandbox.client.delete(NAMESPACE, preview.namespace)
    await sandbox.gone(NAMESPACE, preview.namespace, namespace="")
    forged = await sandbox.make_namespace(preview.namespace, **{OWNER_UID: asked.metadata.uid})
    await sandbox.start(make_operator())
    resource = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    assert "is not the one in the status" in resource.status.condition("Ready").message
    await preview.delete()
    await sandbox.gone(PreviewEnvironment, preview.name)
    kept = await sandbox.get(NAMESPACE, preview.namespace)
    assert kept["metadata"]["uid"] == forged["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    await sandbox.client.delete(NAMESPACE, preview.namespace)


async def test_a_namespace_that_somebody_deletes_is_made_again(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    old = (await preview.ready()).status.namespace
    assert old is not None
    await sandbox.client.delete(NAMESPACE, preview.namespace)

    async def remade() -> bool:
        resource = await sandbox.get(PreviewEnvironment, preview.name)
        new = resource.status.namespace
        return new is not None and new.uid != old.uid and resource.status.is_true("Ready")

    await sandbox.until(remade, "the namespace is made again")
    assert all((await preview.children()).values())


async def test_a_namespace_that_does_not_go_is_reported_with_what_blocks_it(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator(Settings(deletion_report_after=2)))
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    stuck = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stuck", "namespace": preview.namespace, "finalizers": ["example.com/never"]},
    }
    await sandbox.client.create(stuck)
    await preview.delete()

    async def reported() -> bool:
        resource = await sandbox.get(PreviewEnvironment, preview.name)
        condition = resource.status.condition("Ready")
        return condition.reason == "NamespaceTerminating" and "example.com/never" in condition.message

    await sandbox.until(reported, "the condition names the finalizer that blocks")
    await sandbox.client.patch(
        "v1/ConfigMap", "stuck", {"metadata": {"finalizers": None}}, namespace=preview.namespace
    )
    await preview.gone()


@pytest.mark.virtual_time
async def test_marks_in_the_namespace_of_another_team_do_not_run_a_preview(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await sandbox.at_rest()
    counted = f'preview_environments_reconcile_total{{pr_number="{preview.number}"}}'
    before = sandbox.metrics()[counted]
    await sandbox.make_namespace("evil")
    for namespace in ("evil", preview.namespace):
        forged = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "forged",
                "namespace": namespace,
                "labels": {"managed-by": "preview-operator"},
                "annotations": {OWNER: f"{sandbox.namespace}/{preview.name}"},
            },
            "spec": {"ports": [{"port": 80}]},
        }
        await sandbox.client.create(forged)
        await sandbox.clock.sleep(30)
        ours = namespace == preview.namespace
        assert (sandbox.metrics()[counted] > before) == ours
