"""The clusters of an operator that works in several: where they come from, and how each is reached.

A provider yields the whole set of clusters each time it changes, never a single arrival or departure: nothing is lost
when it fails and starts again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.clock import Clock

__all__ = ["ClusterProvider", "ClusterSet", "KubeconfigDirectory", "MemberCluster", "StaticClusters"]


class MemberCluster(msgspec.Struct, frozen=True):
    """A cluster that an operator works in."""

    connect: Callable[[Clock], Client]
    """Returns a new client, which the operator closes when it leaves the cluster. It may raise: it is called again."""
    revision: str = ""
    """A text that changes with the address or the credentials: the operator then connects again."""


ClusterSet: TypeAlias = Mapping[str, MemberCluster]
"""The clusters of an operator, by name. A name is at most 63 letters, digits, dashes, dots and underscores."""


class ClusterProvider(Protocol):
    """An origin of clusters that come and go."""

    def clusters(self, clock: Clock) -> AsyncIterator[ClusterSet]:
        """Yield the whole set at first and after each change, until cancelled.

        If it raises or ends, the clusters of its last set are kept, and it is called again with back-off.
        """


class StaticClusters:
    """Clusters that stay the same, by name: each a kubeconfig file, or a `MemberCluster`."""

    def __init__(self, clusters: Mapping[str, str | Path | MemberCluster]) -> None:
        self._clusters = {
            name: each if isinstance(each, MemberCluster) else MemberCluster(_connector(Path(each)))
            for name, each in clusters.items()
        }

    async def clusters(self, clock: Clock) -> AsyncIterator[ClusterSet]:
        """Yield the clusters once."""
        yield self._clusters
        await asyncio.get_running_loop().create_future()


class KubeconfigDirectory:
    """A directory with a kubeconfig for each cluster, such as a mounted Secret. Files may come, change and go.

    Each file is trusted: a kubeconfig can name programs to run and files to read.
    """

    def __init__(self, directory: str | Path, *, suffix: str = ".kubeconfig", every: float = 10.0) -> None:
        if every <= 0:
            raise ValueError(f"the interval of a KubeconfigDirectory must be positive, got {every}")
        self._directory = Path(directory)
        self._suffix = suffix
        self._every = every

    async def clusters(self, clock: Clock) -> AsyncIterator[ClusterSet]:
        """Yield the clusters of the directory, and again when a file has come, changed or gone.

        Raises OSError if the directory cannot be read: its absence does not mean that there are no clusters.
        """
        last: dict[str, str] | None = None
        while True:
            revisions = self._revisions()
            if revisions != last:
                last = revisions
                yield {name: self._cluster(name, revision) for name, revision in revisions.items()}
            await clock.sleep(self._every)

    def _revisions(self) -> dict[str, str]:
        """Return the hash of each cluster's file.

        Times and inodes say nothing: an update of a mounted Secret writes all its files again.
        """
        revisions: dict[str, str] = {}
        with os.scandir(self._directory) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                # Hidden entries are the bookkeeping of mounted Secrets.
                if entry.name.startswith(".") or not entry.name.endswith(self._suffix) or not entry.is_file():
                    continue
                content = Path(entry.path).read_bytes()
                name = entry.name.removesuffix(self._suffix) if self._suffix else entry.name
                revisions[name] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return revisions

    def _cluster(self, name: str, revision: str) -> MemberCluster:
        return MemberCluster(_connector(self._directory / f"{name}{self._suffix}"), revision)


def _connector(kubeconfig: Path) -> Callable[[Clock], Client]:
    return lambda clock: Client.connect(kubeconfig=kubeconfig, clock=clock)
