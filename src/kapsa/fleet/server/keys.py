"""The keys of a manager: in a file or a variable, or in Vault's transit engine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import structlog

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.variables import SettingsError
from kapsa.fleet.infrastructure.audit.chain import chain_key
from kapsa.fleet.infrastructure.local_keys import LocalKeys
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.vault.encryption_keys import (
    FileKeys,
    FixedKeys,
    KeyRing,
    KeyRingError,
    KeySource,
)
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.key_wrapper import KeyWrapper, LayeredKeyWrapper
from kapsa.fleet.infrastructure.vault.local_vault import LocalKeyWrapper, LocalVault
from kapsa.fleet.infrastructure.vault.rotation import check_keys
from kapsa.fleet.infrastructure.vault.transit_api import TransitAddress, TransitApi
from kapsa.fleet.infrastructure.vault.transit_keys import TransitKeyWrapper
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable
from kapsa.fleet.settings import DATABASE_VARIABLE, PREFIX, FleetSettings

__all__ = ["ManagerKeys", "encryption_keys", "open_keys", "open_vault"]

log = structlog.get_logger(__name__)

_TRANSIT_SECONDS = 5.0
_LONGEST_DELAY = 15.0


class ManagerKeys(msgspec.Struct, frozen=True):
    """A vault whose keys were checked, the key of the audit chain, and the way to let go of them."""

    vault: EnvelopeVault
    audit_key: bytes
    resources: contextlib.AsyncExitStack

    def __repr__(self) -> str:
        return f"ManagerKeys({self.vault.primary_key})"

    async def close(self) -> None:
        """Close the connections to Vault."""
        await self.resources.aclose()


async def open_keys(settings: FleetSettings, database: Database) -> ManagerKeys:
    """Return the keys of a manager. Waits while Vault is away, sealed, or refuses the token.

    Raises KeyRingError unless the keys of the database are loaded: no key, no start.
    """
    async with contextlib.AsyncExitStack() as stack:
        vault = await stack.enter_async_context(open_vault(settings))
        delay = 0.5
        while True:
            try:
                await check_keys(database, vault)
                audit_key = await chain_key(database, vault)
            except VaultUnavailable as error:
                log.warning("waiting for the keys in Vault", error=str(error), retry_seconds=delay)
                await asyncio.sleep(delay)
                delay = min(_LONGEST_DELAY, delay * 2)
            except VaultError as error:
                raise KeyRingError(str(error)) from error
            else:
                return ManagerKeys(vault, audit_key, stack.pop_all())


@contextlib.asynccontextmanager
async def open_vault(settings: FleetSettings) -> AsyncIterator[EnvelopeVault]:
    """Open the vault on the configured keys, which are not checked yet."""
    if not settings.vault_address:
        yield LocalVault(encryption_keys(settings))
        return
    try:
        client = GuardedHttpClient(
            address_guard=None, timeout=_TRANSIT_SECONDS, ca_file=settings.vault_ca_file
        )
    except OSError as error:
        raise SettingsError(
            f"{PREFIX}VAULT_CA_FILE {settings.vault_ca_file} cannot be used: {error.strerror or error}"
        ) from None
    try:
        yield EnvelopeVault(_layered(settings, _transit(settings, client)))
    finally:
        await client.close()


def _transit(settings: FleetSettings, client: GuardedHttpClient) -> TransitKeyWrapper:
    address = TransitAddress(
        settings.vault_address,
        settings.vault_transit_mount,
        settings.vault_transit_key,
        settings.vault_namespace,
        settings.vault_token,
        settings.vault_token_file,
    )
    return TransitKeyWrapper(TransitApi(client, address), address.mount, address.key)


def _layered(settings: FleetSettings, transit: TransitKeyWrapper) -> KeyWrapper:
    """Return Vault alone, or with the keys that secrets come from, or go back to."""
    if settings.vault_only_opens:
        return LayeredKeyWrapper(LocalKeyWrapper(encryption_keys(settings)), transit)
    generated = LocalKeys(settings.directory).encryption_keys_file
    configured = settings.encryption_keys or settings.encryption_keys_file
    if not configured and (settings.database_url or not generated.exists()):
        return transit
    return LayeredKeyWrapper(transit, LocalKeyWrapper(encryption_keys(settings)))


def encryption_keys(settings: FleetSettings) -> KeySource:
    """Return the configured keys, or those of the data directory for the embedded database."""
    if settings.encryption_keys:
        return FixedKeys(KeyRing.parse(settings.encryption_keys, f"{PREFIX}ENCRYPTION_KEYS"))
    if settings.encryption_keys_file is not None:
        return FileKeys(settings.encryption_keys_file)
    if settings.database_url:
        raise SettingsError(
            f"{DATABASE_VARIABLE} is set, so {PREFIX}ENCRYPTION_KEYS_FILE or {PREFIX}ENCRYPTION_KEYS must be set, too: "
            "credentials in the database are sealed. `kapsa fleet keys generate` prints a key"
        )
    return FileKeys(LocalKeys(settings.directory).ensure_encryption_keys())
