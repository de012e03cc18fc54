"""What tests leave on a real cluster that they share, and its removal.

An operator that watches all namespaces would take up the objects of every test before it: each test would be slower than
the one before, and meet what another one expects. A webhook configuration whose server is gone refuses the next test's
writes. A kind whose name another module's kind shares, in one group, is not served; one whose conversion webhook is gone
cannot be listed, and that stops the cluster's own garbage collector and its deletion of namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import NotFound
from tests.eventually import eventually

__all__ = ["remove_kinds", "remove_objects"]

_DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_ASKED_ON_WRITES = (
    "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration",
)


async def remove_objects(client: Client) -> None:
    """Remove what could meet the next test. The namespaces go in their own time: no other test uses them."""
    for kind in _ASKED_ON_WRITES:
        for configuration in (await client.list(kind)).items:
            await client.delete(kind, _name(configuration), missing_ok=True)
    for definition in (await client.list(_DEFINITIONS)).items:
        if _is_converted(definition):
            await _remove_kind(client, definition)
        elif _is_served(definition):
            await _remove_custom_resources(client, _stored_kind(definition))
    for namespace in (await client.list("v1/Namespace")).items:
        if _belongs_to_one_test(namespace):
            await client.delete("v1/Namespace", _name(namespace), missing_ok=True)


async def remove_kinds(client: Client) -> None:
    """Remove all custom kinds; returns once they are gone, so that they can be made anew."""
    definitions = (await client.list(_DEFINITIONS)).items
    await asyncio.gather(*(_remove_kind(client, definition) for definition in definitions))


async def _remove_kind(client: Client, definition: dict[str, Any]) -> None:
    name = _name(definition)
    if _is_converted(definition):
        plain = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        with contextlib.suppress(NotFound):  # it may be on its way already
            await client.patch(_DEFINITIONS, name, plain)
    await client.delete(_DEFINITIONS, name, missing_ok=True)

    async def exists() -> bool:
        try:
            await client.get(_DEFINITIONS, name)
        except NotFound:
            return False
        return True

    await eventually(exists, lambda there: not there, f"the end of {name}")


def _is_converted(definition: dict[str, Any]) -> bool:
    return bool(definition["spec"].get("conversion", {}).get("strategy") == "Webhook")


def _is_served(definition: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in definition["status"].get("conditions", ())}
    return conditions.get("Established") == "True" and conditions.get("Terminating") != "True"


def _belongs_to_one_test(namespace: dict[str, Any]) -> bool:
    """The cluster's own namespaces and those of installed operators have names that every test knows."""
    name = _name(namespace)
    known = name == "default" or name.startswith("kube-") or name.endswith("-system")
    return not known and "deletionTimestamp" not in namespace["metadata"]


async def _remove_custom_resources(client: Client, kind: str) -> None:
    for left in (await client.list(kind)).items:
        await _remove(client, kind, left)


async def _remove(client: Client, kind: str, left: dict[str, Any]) -> None:
    namespace = left["metadata"].get("namespace", "")
    try:
        if left["metadata"].get("finalizers"):  # whose operator is gone
            await client.patch(kind, _name(left), {"metadata": {"finalizers": None}}, namespace=namespace)
        await client.delete(kind, _name(left), namespace=namespace, missing_ok=True)
    except NotFound:
        return  # it was on its way out, and only the finalizer had kept it


def _stored_kind(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    return f"{spec['group']}/{version}/{spec['names']['kind']}"


def _name(found: dict[str, Any]) -> str:
    return str(found["metadata"]["name"])
