"""The secrets of rollouts: secret values, and what is applied to clusters, sealed and opened with no transaction open.

Keys may be in a Vault that is slow or away. A connection that waits for it would hold locks, and is one of few.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from kapsa.fleet.orchestrator.bounded_calls import bounded
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

    async def check(self, deployment_id: uuid.UUID) -> None:
        """Raise the error of a vault that cannot seal now."""
        await self._vault.seal(_BUNDLE, _BUNDLE_TABLE, str(deployment_id), 0, b"")

    async def seal_values(self, deployment_id: uuid.UUID, values: Mapping[str, Any]) -> SealedSecret | None:
        """Seal the secret values of a deployment. Return None if there are none."""
        if not values:
            return None
        content = msgspec.json.encode(values)
        return await self._vault.seal(_VALUES, _VALUES_TABLE, str(deployment_id), 1, content)

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

        async def open_one(cluster_id: uuid.UUID, secret: SealedSecret) -> ReleaseBundle | None:
            try:
                return await self.open_bundle(deployment_id, cluster_id, secret)
            except VaultUnavailable:
                raise
            except VaultError as error:
                log.warning("a stored manifest is lost", deploymentId=str(deployment_id), error=str(error))
                return None

        opened = await bounded(_PARALLEL, (open_one(*each) for each in sealed.items()))
        return {key: bundle for key, bundle in zip(sealed, opened, strict=True) if bundle is not None}

    async def seal_bundles(
        self, deployment_id: uuid.UUID, bundles: Mapping[uuid.UUID, ReleaseBundle]
    ) -> dict[uuid.UUID, SealedSecret]:
        """Seal what is applied to clusters, each for its own row."""

        async def seal_one(cluster_id: uuid.UUID, bundle: ReleaseBundle) -> SealedSecret:
            row, content = f"{deployment_id}/{cluster_id}", msgspec.msgpack.encode(bundle)
            return await self._vault.seal(_BUNDLE, _BUNDLE_TABLE, row, 1, content)

        sealed = await bounded(_PARALLEL, (seal_one(*each) for each in bundles.items()))
        return dict(zip(bundles, sealed, strict=True))
