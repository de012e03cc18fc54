"""The secrets of rollouts: secret values, and what is applied to clusters, sealed and opened with no transaction open.

Keys may be in a Vault that is slow or away. A connection that waits for it would hold locks, and is one of few.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.ports.vault import KeyVault, SealedSecret, VaultError, VaultUnavailable

__all__ = ["RolloutSecrets"]

log = structlog.get_logger()

_PARALLEL = 8
_VALUES, _VALUES_TABLE = "deployment-values", "deployment"
_BUNDLE, _BUNDLE_TABLE = "deployment-bundle", "deployment_bundle"


class RolloutSecrets:
    """A vault for what the rows of a deployment hold.

    Each method raises VaultUnavailable if the keys cannot be used now, and VaultError if they never will.
    """

    def __init__(self, vault: KeyVault) -> None:
        self._vault = vault

    async def open_values(self, deployment_id: uuid.UUID, sealed: SealedSecret | None) -> dict[str, Any]:
        """Return the secret values of a deployment."""
        if sealed is None:
            return {}
        content = await self._vault.open(sealed, _VALUES, _VALUES_TABLE, str(deployment_id), 1)
        return msgspec.json.decode(content, type=dict[str, Any])

    async def open_bundle(
        self, deployment_id: uuid.UUID, cluster_id: uuid.UUID, sealed: SealedSecret
    ) -> ReleaseBundle:
        """Return what is applied to a cluster."""
        content = await self._vault.open(sealed, _BUNDLE, _BUNDLE_TABLE, f"{deployment_id}/{cluster_id}", 1)
        return msgspec.msgpack.decode(content, type=ReleaseBundle)

    async def open_bundles(
        self, deployment_id: uuid.UUID, sealed: Mapping[uuid.UUID, SealedSecret]
    ) -> dict[uuid.UUID, ReleaseBundle]:
        """Return what is applied to clusters, without what can never be opened again."""
        limit = asyncio.Semaphore(_PARALLEL)
        opened: dict[uuid.UUID, ReleaseBundle] = {}

        async def open_one(cluster_id: uuid.UUID, secret: SealedSecret) -> None:
            async with limit:
                try:
                    opened[cluster_id] = await self.open_bundle(deployment_id, cluster_id, secret)
                except VaultUnavailable:
                    raise
                except VaultError as error:
                    log.warning(
                        "a stored manifest is lost", deploymentId=str(deployment_id), error=str(error)
                    )

        calls = (open_one(cluster_id, secret) for cluster_id, secret in sealed.items())
        for failure in await asyncio.gather(*calls, return_exceptions=True):
            if failure is not None:
                raise failure
        return opened
