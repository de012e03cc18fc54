"""The clusters that an operator of many clusters works in, by their UID: each under one name at a time.

A kubeconfig that was renamed, or two for one API server, would otherwise give a resource two runs.
"""

from __future__ import annotations

import asyncio

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ConfigError, Forbidden, NotFound

__all__ = ["Occupancy", "cluster_uid"]

_NAMESPACE = "kube-system"
"""The namespace whose UID is that of the cluster: every cluster has it, and nobody can delete it."""


async def cluster_uid(client: Client) -> str:
    """Return the UID of a cluster, whatever its name and address. Raises `ConfigError` if it may not be read."""
    try:
        namespace = await client.get("v1/Namespace", _NAMESPACE)
    except Forbidden as error:
        raise ConfigError(
            f"cannot read the UID of the cluster: grant `get` on the namespace {_NAMESPACE}, for instance with the "
            f"output of `kapsa rbac` ({error})"
        ) from error
    except NotFound as error:
        raise ConfigError(
            f"the cluster has no namespace {_NAMESPACE}, by whose UID a cluster is recognized: create it there"
        ) from error
    return str(namespace["metadata"]["uid"])


class _Occupant(msgspec.Struct, frozen=True):
    """The member that works in a cluster."""

    name: str
    left: asyncio.Event


class Occupancy:
    """The member in each cluster, by the UID of the cluster."""

    def __init__(self) -> None:
        self._occupants: dict[str, _Occupant] = {}

    def occupant(self, uid: str) -> str | None:
        """Return the name under which the operator works in a cluster; None if it does not."""
        occupant = self._occupants.get(uid)
        return None if occupant is None else occupant.name

    def enter(self, uid: str, name: str) -> None:
        """Work in a cluster, in which nobody works, under this name."""
        assert uid not in self._occupants
        self._occupants[uid] = _Occupant(name, asyncio.Event())

    def leave(self, uid: str) -> None:
        """Let another name have the cluster: no run is left there."""
        self._occupants.pop(uid).left.set()

    async def wait_until_left(self, uid: str) -> None:
        """Wait until the present occupant has left. Another one may have entered by then."""
        if (occupant := self._occupants.get(uid)) is not None:
            await occupant.left.wait()
