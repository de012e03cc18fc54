"""Removal of the objects that tests leave on a shared real cluster.

An operator that watches all namespaces would process the objects of all earlier tests: each test would be
slower than the one before, and see the objects of another. A webhook configuration whose server is gone
rejects the next test's writes, and so does a policy. A kind that has the same name and group as one of
another module is not served. A kind whose conversion webhook is gone cannot be listed, which stops the
cluster's own garbage collector and its deletion of namespaces.
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
_ADMISSION = (
    "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
)


async def remove_objects(client: Client) -> None:
    """Remove the objects that could affect the next test. Namespaces, which no test shares, may take longer."""
    for kind in _ADMISSION:
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
    """Remove all custom kinds and return once they are gone, so that they can be created again."""
    definitions = (await client.list(_DEFINITIONS)).items
    await asyncio.gather(*(_remove_kind(client, definition) for definition in definitions))


async def _remove_kind(client: Client, definition: dict[str, Any]) -> None:
    name = _name(definition)
    if _is_converted(definition):
        plain = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        with contextlib.suppress(NotFound):  # it may be gone already
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
    """Return whether a test created the namespace: not the cluster itself, nor for an installed operator."""
    name = _name(namespace)
    shared = name == "default" or name.startswith("kube-") or name.endswith("-system")
    return not shared and "deletionTimestamp" not in namespace["metadata"]


async def _remove_custom_resources(client: Client, kind: str) -> None:
    for obj in (await client.list(kind)).items:
        await _remove(client, kind, obj)


async def _remove(client: Client, kind: str, obj: dict[str, Any]) -> None:
    namespace = obj["metadata"].get("namespace", "")
    try:
        if obj["metadata"].get("finalizers"):  # whose operator is gone
            await client.patch(kind, _name(obj), {"metadata": {"finalizers": None}}, namespace=namespace)
        await client.delete(kind, _name(obj), namespace=namespace, missing_ok=True)
    except NotFound:
        return  # it was being deleted, and only the finalizer had kept it


def _stored_kind(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    return f"{spec['group']}/{version}/{spec['names']['kind']}"


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])
