"""A cluster with an operator that runs in one namespace of it, and ways to wait for what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kapsa.runtime import ClientError, Operator
from kapsa.runtime.testing import Harness

__all__ = ["NamespacedHarness"]


class NamespacedHarness:
    """A cluster with an operator that runs in one namespace of it."""

    def __init__(self, harness: Harness, namespace: str) -> None:
        self.inner = harness
        self.namespace = namespace
        self.client = harness.client

    async def run(self, operator: Operator) -> None:
        """Install the operator's CRDs and start it."""
        await self.install(operator)
        await self.inner.start(operator, namespaces=[self.namespace])

    async def install(self, operator: Operator) -> None:
        """Install the operator's CRDs and wait until they are served."""
        await self.inner.install(*operator.resources)

        async def all_are_served() -> bool:
            return all([await self._served(resource) for resource in operator.resources])

        await self.until(all_are_served, "the CRDs are served")

    async def _served(self, resource: Any) -> bool:
        try:
            await self.client.list(resource, namespace=self.namespace)
        except ClientError:
            return False
        return True

    async def apply(self, kind: Any, name: str, **spec: Any) -> None:
        """Ask for a resource, as a person would."""
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.client.apply(manifest, field_manager="person", force=True, field_validation="Strict")

    async def get(self, kind: Any, name: str) -> Any:
        """An object as the cluster has it; None if there is none."""
        return await self.inner.get(kind, name, namespace=self.namespace)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str, *, seconds: float = 60) -> Any:
        """Wait until something holds; fails with `what` if it doesn't."""
        deadline = self.inner.clock.monotonic() + seconds
        while not (result := await holds()):
            if self.inner.clock.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}")
            await self.inner.clock.sleep(0.1)
        return result

    async def exists(self, kind: Any, name: str) -> Any:
        """Wait for an object."""
        return await self.until(lambda: self.get(kind, name), f"{name} exists")

    async def gone(self, kind: Any, name: str) -> None:
        """Wait for an object's end."""

        async def is_gone() -> bool:
            return await self.get(kind, name) is None

        await self.until(is_gone, f"{name} is gone")

    async def condition(self, kind: Any, name: str, condition: str, status: str, reason: str = "") -> Any:
        """Wait for a condition; returns the resource that has it."""

        async def has_condition() -> Any:
            resource = await self.get(kind, name)
            found = resource.status.condition(condition) if resource is not None else None
            fits = found is not None and found.status == status and reason in ("", found.reason)
            return resource if fits else None

        return await self.until(has_condition, f"{name} has {condition}={status} {reason}")

    async def observed(self, kind: Any, name: str, generation: int) -> None:
        """Wait until the operator has seen a generation of a resource."""

        async def has_seen() -> bool:
            resource = await self.get(kind, name)
            return bool(resource.status.observed_generation == generation)

        await self.until(has_seen, f"generation {generation} of {name} is observed")

    async def provide_claim(self, name: str) -> None:
        """Have a volume claim."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": self.namespace}
        await self.client.create(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )

    async def at_rest(self) -> None:
        """Wait until the operator has not written for a while."""
        seen = -1
        while seen != len(self.inner.writes()):
            seen = len(self.inner.writes())
            await self.inner.clock.sleep(3)
