"""A harness for an operator that watches one namespace, with ways to wait for its effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kapsa.runtime import ClientError, Operator
from kapsa.runtime.testing import Harness

__all__ = ["NamespacedHarness"]


class NamespacedHarness:
    """A harness for an operator that watches one namespace."""

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
        """Apply a resource, as a user would."""
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.client.apply(manifest, field_manager="person", force=True, field_validation="Strict")

    async def get(self, kind: Any, name: str) -> Any:
        """Return an object of the cluster, or None."""
        return await self.inner.get(kind, name, namespace=self.namespace)

    async def until(self, holds: Callable[[], Awaitable[Any]], expected: str, *, seconds: float = 60) -> Any:
        """Wait until a function returns a true value. Fail with `expected` if it does not."""
        deadline = self.inner.clock.monotonic() + seconds
        while not (result := await holds()):
            if self.inner.clock.monotonic() > deadline:
                raise AssertionError(f"timed out after {seconds} s: {expected}")
            await self.inner.clock.sleep(0.1)
        return result

    async def exists(self, kind: Any, name: str) -> Any:
        """Wait until an object exists."""
        return await self.until(lambda: self.get(kind, name), f"{name} exists")

    async def gone(self, kind: Any, name: str) -> None:
        """Wait until an object is deleted."""

        async def is_gone() -> bool:
            return await self.get(kind, name) is None

        await self.until(is_gone, f"{name} is gone")

    async def condition(self, kind: Any, name: str, condition: str, status: str, reason: str = "") -> Any:
        """Wait for a condition. Return the resource."""

        async def has_condition() -> Any:
            resource = await self.get(kind, name)
            current = resource.status.condition(condition) if resource is not None else None
            matches = current is not None and current.status == status and reason in ("", current.reason)
            return resource if matches else None

        return await self.until(has_condition, f"{name} has {condition}={status} {reason}")

    async def observed(self, kind: Any, name: str, generation: int) -> None:
        """Wait until the operator has observed a generation of a resource."""

        async def is_observed() -> bool:
            resource = await self.get(kind, name)
            return bool(resource.status.observed_generation == generation)

        await self.until(is_observed, f"generation {generation} of {name} is observed")

    async def provide_claim(self, name: str) -> None:
        """Create a volume claim."""
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
