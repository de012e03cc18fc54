"""`kapsa fleet keys`: generate, list, rotate and remove encryption keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kapsa.cli.fleet.session import read_settings, with_database
from kapsa.cli.target import TargetError

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.postgres.database import Database

__all__ = ["app"]

_IN_VAULT = "vault:"
"""The beginning of the ids of keys in Vault. Their versions are many, and only those that secrets need are listed."""

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Generate, rotate and remove encryption keys."
)


@app.command("generate")
def generate_key() -> None:
    """Print a new encryption key, for KAPSA_FLEET_ENCRYPTION_KEYS_FILE."""
    from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text

    typer.echo(new_key_text())


@app.command("list")
def list_keys() -> None:
    """List the keys by their ids, with the number of secrets under each."""
    from kapsa.fleet.infrastructure.vault.rotation import secrets_by_key
    from kapsa.fleet.server.keys import open_vault

    settings = read_settings()

    async def read(database: Database) -> tuple[dict[str, int], str, frozenset[str]]:
        async with open_vault(settings) as vault:
            await vault.refresh()
            return await secrets_by_key(database), vault.primary_key, vault.key_ids

    counts, primary, loaded = with_database(settings, read)
    for key_id in [primary, *sorted({*loaded, *counts} - {primary})]:
        if key_id == primary or key_id in counts or not key_id.startswith(_IN_VAULT):
            state = "primary" if key_id == primary else "loaded" if key_id in loaded else "NOT LOADED"
            typer.echo(f"{key_id}  {state}  {counts.get(key_id, 0)} secrets")


@app.command("rotate")
def rotate_keys(
    rewrap_only: Annotated[
        bool, typer.Option("--rewrap-only", help="Add no key: move all secrets to the present primary key.")
    ] = False,
) -> None:
    """Add a primary key to the key file, and move all secrets to it. Managers go on working meanwhile.

    With keys in a variable: give all managers the new key as the first, then run this with --rewrap-only.
    """
    from kapsa.fleet.infrastructure.vault.encryption_keys import FileKeys, new_key_text
    from kapsa.fleet.infrastructure.vault.rotation import Rotation, rewrap_all
    from kapsa.fleet.server.keys import encryption_keys, open_vault

    settings = read_settings()
    if not rewrap_only:
        if settings.vault_address and not settings.vault_only_opens:
            key = f"{settings.vault_transit_mount}/keys/{settings.vault_transit_key}"
            raise TargetError(
                f"the keys are in Vault: run `vault write -f {key}/rotate`, and this with --rewrap-only"
            )
        source = encryption_keys(settings)
        if not isinstance(source, FileKeys):
            raise TargetError(
                "the keys are in KAPSA_FLEET_ENCRYPTION_KEYS: put a new key first in it, restart the managers, "
                "and run this with --rewrap-only"
            )
        source.add_primary(new_key_text())

    async def rewrap(database: Database) -> tuple[Rotation, str]:
        async with open_vault(settings) as vault:
            return await rewrap_all(database, vault), vault.primary_key

    result, primary = with_database(settings, rewrap)
    typer.echo(f"{result.rewrapped} secrets moved to {primary}")
    for problem in result.damaged:
        typer.echo(f"damaged: {problem}", err=True)
    for key_id, count in result.remaining.items():
        typer.echo(f"{count} secrets are still under {key_id}: keep it, and run this again", err=True)
    raise typer.Exit(1 if result.remaining else 0)


@app.command("remove")
def remove_key(key_id: Annotated[str, typer.Argument(help="The id of the key.")]) -> None:
    """Remove a key that no secret needs from the key file."""
    from kapsa.fleet.infrastructure.vault.encryption_keys import FileKeys
    from kapsa.fleet.infrastructure.vault.rotation import secrets_by_key
    from kapsa.fleet.server.keys import encryption_keys

    settings = read_settings()
    source = encryption_keys(settings)
    if not isinstance(source, FileKeys):
        raise TargetError("the keys are in KAPSA_FLEET_ENCRYPTION_KEYS: remove the key there")
    if count := with_database(settings, secrets_by_key).get(key_id, 0):
        raise TargetError(
            f"{count} secrets need the key {key_id}: run `kapsa fleet keys rotate --rewrap-only` first"
        )
    source.remove(key_id)
    typer.echo(f"removed {key_id} from {source.path}")
