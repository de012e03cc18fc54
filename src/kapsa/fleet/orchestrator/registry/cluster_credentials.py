"""Credentials of clusters: short-lived tokens, renewed at half their life, and the upload that they began with.

The upload is opened only to bootstrap again when no token is left, and each opening is audited.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.clusters import (
    ClusterCredential,
    ClusterGateway,
    ClusterRepository,
    ClusterUnreachable,
    CredentialRejected,
    CredentialUnavailable,
    IssuedAccess,
    ServiceAccountRef,
)
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import KeyVault, VaultUnavailable

__all__ = ["EXPIRY_WARNING", "ClusterCredentials", "upload_warnings"]

EXPIRY_WARNING = timedelta(days=14)
"""The time before an expiry from which on it is a warning."""

_TABLE = "cluster_credential"
_UPLOAD, _TOKEN = "cluster-upload", "cluster-token"
_MARGIN = timedelta(seconds=30)
"""Time before its expiry from which a token is no longer used."""
_ACTOR = "system:clusters"
_NO_DETAILS: Mapping[str, str] = {}


def upload_warnings(valid_until: datetime | None, now: datetime) -> tuple[str, ...]:
    """Return the warning about an uploaded kubeconfig that expires in less than fourteen days, or has expired."""
    if valid_until is None or valid_until - now > EXPIRY_WARNING:
        return ()
    tense = "expires" if valid_until > now else "expired"
    warning = (
        f"a certificate or token in the uploaded kubeconfig {tense} on {valid_until:%Y-%m-%d at %H:%M} UTC: "
        "upload a new one (PATCH with kubeconfig), or the manager cannot come back after an outage longer than a "
        "token's life"
    )
    return (warning,)


@contextmanager
def _sealing() -> Iterator[None]:
    try:
        yield
    except VaultUnavailable as error:
        raise CredentialUnavailable(f"a new token cannot be sealed now: {error}") from error


class ClusterCredentials:
    """Sealed credentials of clusters, renewed and bootstrapped when they are needed."""

    def __init__(
        self,
        transactions: Transactions,
        repository: ClusterRepository,
        gateway: ClusterGateway,
        vault: KeyVault,
        audit: AuditTrail,
        *,
        cluster_role: str = "cluster-admin",
        rng: random.Random | None = None,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._gateway = gateway
        self._vault = vault
        self._audit = audit
        self._cluster_role = cluster_role
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not secrecy

    def account(self, cluster: ManagedCluster) -> ServiceAccountRef:
        """Return the account of this manager in a cluster. Another manager of the same cluster has another one."""
        return ServiceAccountRef(f"kapsa-fleet-{cluster.id.hex[:12]}", self._cluster_role)

    async def access(self, cluster: ManagedCluster) -> bytes:
        """Return a kubeconfig with a token that is valid now, renewed or bootstrapped if that is due.

        Raises ClusterUnreachable if there is none, with what to do about it.
        """
        now = await self._transactions.now()
        async with self._transactions.transaction() as connection:
            token = await self._repository.credential(connection, cluster.id, _TOKEN)
        if token is None or token.expires_at is None or token.expires_at - _MARGIN <= now:
            return await self.bootstrap_again(cluster, "no token is left")
        kubeconfig = await self._open(cluster, token)
        if token.renew_at is not None and token.renew_at <= now:
            return await self._renew(cluster, token, kubeconfig)
        return kubeconfig

    async def bootstrap_again(self, cluster: ManagedCluster, reason: str) -> bytes:
        """Open the upload, make the account again, and return a kubeconfig with a new token.

        Raises ClusterUnreachable if the upload was discarded, or does not work any more.
        """
        await self._check_sealing(cluster)
        async with self._transactions.transaction() as connection:
            upload = await self._repository.credential(connection, cluster.id, _UPLOAD)
            token = await self._repository.credential(connection, cluster.id, _TOKEN)
            if upload is None:
                raise ClusterUnreachable(
                    f"{reason}, and the uploaded kubeconfig was discarded: upload a new one (PATCH with kubeconfig)"
                )
            # Recorded before it is opened: an opening that leaves no trace is worse than a trace without one.
            await self._record(connection, cluster, "cluster.openUpload", reason)
        kubeconfig = await self._open(cluster, upload)
        async with self._gateway.connect(kubeconfig) as session:
            issued = await session.bootstrap(self.account(cluster))
        await self._replace(cluster, issued, reason, after=token.version if token else 0)
        return issued.kubeconfig

    async def put(
        self, connection: Connection, cluster: ManagedCluster, credential: ClusterCredential
    ) -> bool:
        """Store a sealed credential in place of the version before. Return False if another replica was faster."""
        return await self._repository.put_credential(connection, cluster.id, credential)

    async def seal_token(
        self, cluster: ManagedCluster, issued: IssuedAccess, *, after: int
    ) -> ClusterCredential:
        """Seal the token that follows a version. Called with no transaction open, since the vault may be slow."""
        now = await self._transactions.now()
        version = after + 1
        sealed = await self._vault.seal(_TOKEN, _TABLE, str(cluster.id), version, issued.kubeconfig)
        half = issued.lifetime / 2
        return ClusterCredential(
            _TOKEN,
            version,
            sealed,
            renew_at=now + half * self._rng.uniform(0.9, 1.1),
            expires_at=now + issued.lifetime,
        )

    async def seal_upload(
        self, cluster: ManagedCluster, kubeconfig: bytes, valid_until: datetime | None, *, after: int
    ) -> ClusterCredential:
        """Seal the uploaded kubeconfig that follows a version, and note when it expires. See `seal_token`."""
        version = after + 1
        sealed = await self._vault.seal(_UPLOAD, _TABLE, str(cluster.id), version, kubeconfig)
        return ClusterCredential(_UPLOAD, version, sealed, expires_at=valid_until)

    async def warnings(self, cluster: ManagedCluster, now: datetime) -> tuple[str, ...]:
        """Return what a person should do before it is too late, without opening the upload."""
        async with self._transactions.transaction() as connection:
            upload = await self._repository.credential(connection, cluster.id, _UPLOAD)
        return upload_warnings(upload.expires_at if upload is not None else None, now)

    async def discard_upload(self, connection: Connection, cluster: ManagedCluster) -> bool:
        """Erase the uploaded kubeconfig. Return False if there was none."""
        return await self._repository.erase_credential(connection, cluster.id, _UPLOAD)

    async def versions(self, cluster: ManagedCluster) -> tuple[int, int]:
        """Return the versions of the present token and of the present upload: 0 if there is none."""
        async with self._transactions.transaction() as connection:
            token = await self._repository.credential(connection, cluster.id, _TOKEN)
            upload = await self._repository.credential(connection, cluster.id, _UPLOAD)
        return token.version if token else 0, upload.version if upload else 0

    async def token_expiry(self, connection: Connection, cluster: ManagedCluster) -> datetime | None:
        """Return the time at which the present token expires."""
        token = await self._repository.credential(connection, cluster.id, _TOKEN)
        return token.expires_at if token is not None else None

    async def _renew(self, cluster: ManagedCluster, token: ClusterCredential, kubeconfig: bytes) -> bytes:
        try:
            await self._check_sealing(cluster)
            async with self._gateway.connect(kubeconfig) as session:
                issued = await session.issue(self.account(cluster))
            await self._replace(cluster, issued, "half of its life is over", after=token.version)
        except CredentialRejected as error:
            return await self.bootstrap_again(cluster, f"the token was rejected ({error})")
        except ClusterUnreachable:
            return kubeconfig  # it is valid for the other half of its life
        return issued.kubeconfig

    async def _check_sealing(self, cluster: ManagedCluster) -> None:
        """Raise CredentialUnavailable if a token could not be stored: none is made in the cluster then."""
        with _sealing():
            await self._vault.seal(_TOKEN, _TABLE, str(cluster.id), 0, b"")

    async def _replace(
        self, cluster: ManagedCluster, issued: IssuedAccess, reason: str, *, after: int
    ) -> None:
        """Store a token that is used from now on, with an audit entry that has its id."""
        with _sealing():
            token = await self.seal_token(cluster, issued, after=after)
        async with self._transactions.transaction() as connection:
            if await self.put(connection, cluster, token):
                details = {"credential": issued.credential_id}
                await self._record(connection, cluster, "cluster.issueToken", reason, details)

    async def _open(self, cluster: ManagedCluster, credential: ClusterCredential) -> bytes:
        row = str(cluster.id)
        try:
            return await self._vault.open(
                credential.sealed, credential.purpose, _TABLE, row, credential.version
            )
        except VaultUnavailable as error:
            raise CredentialUnavailable(f"its credential cannot be opened now: {error}") from error

    async def _record(
        self,
        connection: Connection,
        cluster: ManagedCluster,
        action: str,
        reason: str,
        details: Mapping[str, str] = _NO_DETAILS,
    ) -> None:
        entry = AuditEntry(
            actor=_ACTOR,
            action=action,
            object_kind="cluster",
            object_id=str(cluster.id),
            payload={"name": cluster.name, "reason": reason, **details},
        )
        await self._audit.record(connection, entry)
