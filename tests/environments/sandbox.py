"""A namespace on a cluster of either engine, with operators and ways to wait for their effects."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kapsa.environments.resources import KINDS
from kapsa.runtime import ClientError, CustomResource, Operator
from kapsa.runtime.testing import Harness, RecordedCall

__all__ = ["Sandbox"]

Kind = type[CustomResource[Any, Any]]


class Sandbox:
    """One test's part of a cluster: a namespace, numbers and names that no other test uses."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.client = harness.client
        self.clock = harness.clock
        self.unique = uuid.uuid4().hex[:8]
        self.namespace = f"test-{self.unique}"
        self.number = random.randrange(1, 900_000)

    async def prepare(self) -> None:
        """Install the kinds and create the namespace."""
        await self.harness.install(*KINDS)
        await self.until(self._all_served, "the kinds are served")
        await self.make_namespace(self.namespace)

    async def _all_served(self) -> bool:
        try:
            for kind in KINDS:
                await self.client.list(kind)
        except ClientError:
            return False
        return True

    async def make_namespace(self, name: str, **labels: str) -> dict[str, Any]:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        return await self.client.create(manifest)

    async def start(self, operator: Operator, *, name: str = "operator") -> None:
        await self.harness.start(operator, name=name)

    async def apply(self, kind: Kind, name: str, spec: Mapping[str, Any], *, namespace: str = "") -> Any:
        """Apply a resource, as a person does."""
        metadata = {"name": name}
        if kind.definition.namespaced:
            metadata["namespace"] = namespace or self.namespace
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        applied = await self.client.apply(
            manifest, field_manager="person", force=True, field_validation="Strict"
        )
        return kind.from_dict(applied)

    async def get(self, kind: Any, name: str, *, namespace: str | None = None) -> Any:
        """Return an object of the cluster; None if it does not exist."""
        where = self.namespace if namespace is None else namespace
        return await self.harness.get(kind, name, namespace=where)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str, *, seconds: float = 60) -> Any:
        """Wait until a condition holds. Fails with `what` if it does not.

        It looks 600 times at most: hours of virtual time would take seconds of real time otherwise.
        """
        deadline = self.clock.monotonic() + seconds
        while not (result := await holds()):
            if self.clock.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            await self.clock.sleep(seconds / 600)
        return result

    async def exists(self, kind: Any, name: str, *, namespace: str | None = None) -> Any:
        return await self.until(lambda: self.get(kind, name, namespace=namespace), f"{name} exists")

    async def gone(self, kind: Any, name: str, *, namespace: str | None = None, seconds: float = 60) -> None:
        async def is_gone() -> bool:
            return await self.get(kind, name, namespace=namespace) is None

        await self.until(is_gone, f"{name} is gone", seconds=seconds)

    async def condition(
        self, kind: Kind, name: str, status: str = "True", *, about: str = "Ready", reason: str = ""
    ) -> Any:
        """Wait for a condition for the current spec. Returns the resource."""
        seen: list[str] = []

        async def has_condition() -> Any:
            resource = await self.get(kind, name)
            current = resource.status.condition(about) if resource is not None else None
            seen[:] = [str(current)]
            fits = (
                current is not None
                and current.status == status
                and reason in ("", current.reason)
                and resource.status.observed_generation == resource.metadata.generation
            )
            return resource if fits else None

        try:
            return await self.until(has_condition, f"{name} has {about}={status} {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None

    async def event(self, reason: str, text: str = "") -> Any:
        """Wait for an event of this reason, with this text in its note. Events are sent in the background."""

        async def recorded() -> Any:
            events = await self.harness.events(reason=reason)
            return next((each for each in events if text in each.get("note", "")), None)

        return await self.until(recorded, f"an event {reason} with {text!r}")

    async def at_rest(self, seconds: float = 3) -> None:
        """Wait until no operator has written for a while."""
        seen = -1
        while seen != len(self.harness.writes()):
            seen = len(self.harness.writes())
            await self.clock.sleep(seconds)

    def writes(self) -> list[RecordedCall]:
        return self.harness.writes()

    def metrics(self, name: str = "operator") -> dict[str, float]:
        """Return the operator's metrics: the value of each sample by its name and labels."""
        text = self.harness.running[name].metrics.render().decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {sample: float(value) for sample, value in lines}
