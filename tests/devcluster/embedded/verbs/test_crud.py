"""Create, read, update and patch: identity, optimistic locking, generations, dry runs, no-ops."""

from __future__ import annotations

import pytest
import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, WIDGET_DEFINITION, WIDGETS, Api, configmap

ONE = f"{CONFIGMAPS}/one"


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


def widget(name: str = "one", **spec: object) -> dict[str, object]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def test_a_created_object_has_its_system_metadata(api: Api):
    created = await api.configmap("one", a="1")
    meta = created.meta
    assert meta["namespace"] == "default"
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z")
    assert int(meta["resourceVersion"]) > 0
    assert "generation" not in meta
    assert (await api.get(ONE)).body == created.body


async def test_a_name_can_be_used_once(api: Api):
    await api.configmap("one")
    again = await api.post(CONFIGMAPS, configmap("one"))
    assert again.status == 409
    assert again.body["reason"] == "AlreadyExists"
    assert again.message == 'configmaps "one" already exists'
    assert again.body["details"] == {"name": "one", "kind": "configmaps"}


async def test_a_missing_object_is_not_found(api: Api):
    missing = await api.get("/apis/apps/v1/namespaces/default/deployments/web")
    assert missing.status == 404
    assert missing.message == 'deployments.apps "web" not found'
    assert missing.body["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


async def test_an_update_needs_the_revision_it_was_made_from(api: Api):
    created = await api.configmap("one", a="1")
    body = created.body
    changed = await api.put(ONE, {**body, "data": {"a": "2"}})
    assert changed.status == 200
    assert changed.revision > created.revision
    stale = await api.put(ONE, {**body, "data": {"a": "3"}})
    assert stale.status == 409
    assert stale.message == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_an_update_without_a_revision_is_unconditional_where_the_kind_allows_it(api: Api):
    await api.configmap("one", a="1")
    assert (await api.put(ONE, configmap("one", a="2"))).status == 200
    await api.post(CRDS, WIDGET_DEFINITION)
    await api.post(WIDGETS, widget(size=1))
    refused = await api.put(f"{WIDGETS}/one", widget(size=2))
    assert refused.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message


async def test_an_update_that_changes_nothing_keeps_the_revision(api: Api):
    created = await api.configmap("one", a="1")
    same = await api.put(ONE, created.body)
    assert same.body == created.body
    assert (await api.merge(ONE, {"data": {"a": "1"}})).revision == created.revision


async def test_an_update_with_another_uid_is_a_conflict(api: Api):
    created = await api.configmap("one")
    body = created.body
    body["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    refused = await api.put(ONE, body)
    assert refused.status == 409
    assert "Precondition failed: UID in precondition" in refused.message


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "two"}, "the name of the object (two) does not match the name on the URL (one)"),
        ({}, "the name of the object (one based on URL) was undeterminable: name must be provided"),
        (
            {"name": "one", "namespace": "other"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
async def test_the_body_must_agree_with_the_path(api: Api, metadata: dict[str, str], message: str):
    await api.configmap("one")
    refused = await api.put(ONE, {"metadata": metadata})
    assert (refused.status, refused.message) == (400, message)


async def test_a_put_creates_only_kinds_that_allow_it(api: Api):
    assert (await api.put(ONE, configmap("one"))).status == 404
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    made = await api.put(leases, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
    assert made.status == 201


async def test_generation_counts_changes_of_the_spec(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    path = f"{WIDGETS}/one"
    assert (await api.post(WIDGETS, widget(size=1))).meta["generation"] == 1
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).meta["generation"] == 1
    assert (await api.merge(f"{path}/status", {"status": {"size": 1}})).meta["generation"] == 1
    assert (await api.merge(path, {"spec": {"size": 2}})).meta["generation"] == 2


async def test_status_and_spec_are_written_through_their_own_paths(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    created = await api.post(WIDGETS, {**widget(size=1), "status": {"size": 9}})
    assert "status" not in created.body
    body = {**created.body, "spec": {"size": 5}, "status": {"size": 3}}
    body["metadata"]["labels"] = {"ignored": "yes"}
    updated = await api.put(f"{WIDGETS}/one/status", body)
    assert updated.body["spec"] == {"size": 1}
    assert updated.body["status"] == {"size": 3}
    assert "labels" not in updated.meta
    kept = await api.merge(f"{WIDGETS}/one", {"status": {"size": 7}})
    assert kept.body["status"] == {"size": 3}


async def test_a_dry_run_changes_nothing(api: Api):
    dry = await api.post(CONFIGMAPS, configmap("one"), dryRun="All")
    assert dry.status == 201
    assert "resourceVersion" not in dry.meta
    assert (await api.get(ONE)).status == 404
    created = await api.configmap("one", a="1")
    assert (await api.merge(ONE, {"data": {"a": "2"}}, dryRun="All")).body["data"] == {"a": "2"}
    assert (await api.delete(ONE, dryRun="All")).status == 200
    assert (await api.get(ONE)).body == created.body
    refused = await api.post(CONFIGMAPS, configmap("two"), dryRun="Some")
    assert refused.status == 422


async def test_an_apply_creates_and_then_owns(api: Api):
    made = await api.apply(ONE, configmap("one", a="1"))
    assert made.status == 201
    again = await api.apply(ONE, configmap("one", a="2"))
    assert (again.status, again.body["data"]) == (200, {"a": "2"})
    conflict = await api.apply(ONE, configmap("one", a="3"), manager="another")
    assert conflict.status == 409
    forced = await api.apply(ONE, configmap("one", a="3"), manager="another", force="true")
    assert forced.body["data"] == {"a": "3"}


async def test_unknown_fields_are_reported_dropped_or_rejected(api: Api):
    body = {**configmap("one"), "bogus": 1}
    warned = await api.post(CONFIGMAPS, body, dryRun="All")
    assert warned.headers["warning"] == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in warned.body
    ignored = await api.post(CONFIGMAPS, body, dryRun="All", fieldValidation="Ignore")
    assert "warning" not in ignored.headers
    refused = await api.post(CONFIGMAPS, body, fieldValidation="Strict")
    assert refused.status == 400
    assert refused.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bogus"'
    )


async def test_a_patch_that_races_another_write_is_retried(api: Api):
    """A patch is applied to the object as it is when stored, even if another write comes during admission."""
    server = api.server

    class Slow:
        resources = None

        async def mutate(self, write, obj, old):
            if old is not None and "first" in obj["data"] and not done:
                done.append(True)
                await api.merge(ONE, {"data": {"second": "2"}})
            return obj

        async def validate(self, write, obj, old):
            return None

        async def validate_deletion(self, deletion, obj):
            return None

    done: list[bool] = []
    await api.configmap("one")
    server.backend.admission.append(Slow())
    answer = await api.merge(ONE, {"data": {"first": "1"}})
    assert answer.status == 200
    assert answer.body["data"] == {"first": "1", "second": "2"}


async def test_a_reader_cannot_change_the_stored_object(api: Api):
    await api.configmap("one", a="1")
    info = api.server.client.resource("", "v1", "configmaps")
    copy = api.server.client.get(info, "default", "one")
    copy["data"]["a"] = "changed"
    assert (await api.get(ONE)).body["data"] == {"a": "1"}


async def test_an_object_that_etcd_would_not_take_is_rejected_and_the_stored_one_stays(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    created = await api.post(WIDGETS, widget("one", color="small"))
    path = f"{WIDGETS}/one"
    grown = await api.put(path, {**created.body, "spec": {"color": "x" * 1_600_000}})
    assert (grown.status, grown.message) == (500, "etcdserver: request is too large")
    assert (await api.get(path)).body == created.body
    larger = await api.post(WIDGETS, widget("two", color="x" * 2_500_000))
    assert larger.status == 500
    assert larger.message.startswith(
        "rpc error: code = ResourceExhausted desc = trying to send message larger"
    )
    assert (await api.get(f"{WIDGETS}/two")).status == 404
