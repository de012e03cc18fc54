"""`kapsa fleet keys`: generate, list, rotate and remove encryption keys."""

from __future__ import annotations

from typing import Annotated

import typer

from kapsa.cli.fleet.session import read_settings, with_database
from kapsa.cli.target import TargetError

__all__ = ["app"]

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
    from kapsa.fleet.server.services import encryption_keys

    settings = read_settings()
    counts = with_database(settings, secrets_by_key)
    ring = encryption_keys(settings).ring()
    for key_id in [*ring.keys, *sorted(counts.keys() - ring.keys.keys())]:
        state = "primary" if key_id == ring.primary else "loaded" if key_id in ring.keys else "NOT LOADED"
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
    from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
    from kapsa.fleet.infrastructure.vault.rotation import rewrap_all
    from kapsa.fleet.server.services import encryption_keys

    settings = read_settings()
    source = encryption_keys(settings)
    if not rewrap_only:
        if not isinstance(source, FileKeys):
            raise TargetError(
                "the keys are in KAPSA_FLEET_ENCRYPTION_KEYS: add a new key there as the first, restart the managers, "
                "and run this with --rewrap-only"
            )
        source.add_primary(new_key_text())
    vault = LocalVault(source)
    result = with_database(settings, lambda database: rewrap_all(database, vault))
    typer.echo(f"{result.rewrapped} secrets moved to {vault.primary_key}")
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
    from kapsa.fleet.server.services import encryption_keys

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
