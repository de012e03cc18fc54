"""Field owners of lists and maps whose type changes: the reasons in the findings are the answers of server-side apply."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Conflict, Invalid
from tests.eventually import eventually
from tests.fleet.domain.crds.resources import Raw, crd, object_of, resource, version
from tests.fleet.served_kinds import served

DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
KIND = "example.com/v1/Owned"
STRING = {"type": "string"}
ENTRY = object_of({"k": STRING, "p": {**STRING, "default": "x"}, "v": STRING}, required=["k"])


def listed(list_type: str, *keys: str) -> Raw:
    schema: Raw = {"type": "array", "items": ENTRY, "x-kubernetes-list-type": list_type}
    return {**schema, "x-kubernetes-list-map-keys": list(keys)} if keys else schema


def mapped(map_type: str) -> Raw:
    return object_of({"a": STRING, "b": STRING, "c": STRING}, **{"x-kubernetes-map-type": map_type})


CHANGES = {
    "keyedtoatomic": (listed("map", "k"), listed("atomic")),
    "atomictokeyed": (listed("atomic"), listed("map", "k")),
    "otherkeys": (listed("map", "k"), listed("map", "k", "p")),
    "toatomic": (mapped("granular"), mapped("atomic")),
    "togranular": (mapped("atomic"), mapped("granular")),
}


def definition(index: int) -> Raw:
    schema = resource(object_of({name: change[index] for name, change in CHANGES.items()}))
    names = {"plural": "owneds", "kind": "Owned", "singular": "owned", "listKind": "OwnedList"}
    return {**crd(version("v1", schema), names=names), "metadata": {"name": "owneds.example.com"}}


class Applier:
    """A client that applies one field of an object as one of several managers."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def apply(self, name: str, value: Any, manager: str, *, force: bool = False) -> Any:
        """Return the value of the field after the apply, or the name of the error."""
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Owned",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {name: value},
        }
        try:
            applied = await self._client.apply(body, field_manager=manager, force=force)
        except (Conflict, Invalid) as error:
            return type(error).__name__
        return applied["spec"].get(name)


async def test_owners_of_entries_conflict_or_are_lost_when_the_type_of_a_list_or_map_changes(
    cluster: DevCluster,
) -> None:
    entry_a, entry_b = {"k": "a", "p": "x", "v": "1"}, {"k": "b", "p": "x", "v": "2"}
    other = {**entry_a, "v": "other"}
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create(definition(0))
        await eventually(lambda: served(client, KIND), bool, "the kind to be served")
        owner = Applier(client)
        for name in ("keyedtoatomic", "otherkeys"):
            await owner.apply(name, [entry_a], "one")
            await owner.apply(name, [entry_b], "two")
        await owner.apply("atomictokeyed", [entry_a, entry_b], "one")
        await owner.apply("toatomic", {"a": "1"}, "one")
        await owner.apply("toatomic", {"b": "2"}, "two")
        await owner.apply("togranular", {"a": "1", "b": "2"}, "one")
        await client.patch(DEFINITIONS, "owneds.example.com", {"spec": definition(1)["spec"]})

        # Atomic: managers that each own entries conflict, and a forced apply drops the entries of the others.
        again = lambda: owner.apply("keyedtoatomic", [entry_a], "one")  # noqa: E731
        await eventually(again, lambda value: value == "Conflict", "the new schema to be used")
        assert await owner.apply("keyedtoatomic", [entry_a], "one", force=True) == [entry_a]
        assert await owner.apply("toatomic", {"a": "1"}, "one") == "Conflict"
        assert await owner.apply("toatomic", {"a": "1"}, "one", force=True) == {"a": "1"}

        # By keys: entries belong to nobody. Another manager changes one without a conflict, and an apply without
        # an entry does not remove it.
        for name in ("atomictokeyed", "otherkeys"):
            assert await owner.apply(name, [other], "two") == [other, entry_b], name
            assert await owner.apply(name, [], "one") == [other, entry_b], name
        assert await owner.apply("togranular", {"a": "other"}, "two") == {"a": "other", "b": "2"}
        assert await owner.apply("togranular", {}, "one") == {"a": "other", "b": "2"}
