"""The session of a `kapsa fleet` command: its settings, its log, and the database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from kapsa.cli.target import TargetError

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.postgres.database import Database
    from kapsa.fleet.settings import FleetSettings

__all__ = ["read_settings", "with_database"]

Result = TypeVar("Result")


def read_settings() -> FleetSettings:
    """Read the settings and configure the log, before anything starts: an invalid value is one line."""
    from kapsa.fleet.server.log_lines import configure_log
    from kapsa.fleet.settings import FleetSettings, unknown_variables

    settings = FleetSettings.from_environment()
    configure_log(settings)
    for warning in unknown_variables(os.environ):
        typer.echo(f"kapsa: {warning}", err=True)
    return settings


def with_database(
    settings: FleetSettings, work: Callable[[Database], Awaitable[Result]], *, migrated: bool = True
) -> Result:
    """Run `work` on the database: the configured one, that of a running manager, or the embedded one.

    Raises TargetError if it must be migrated, and has no schema at all.
    """
    from kapsa.fleet.infrastructure.postgres.migration import has_schema
    from kapsa.fleet.server.lifecycle import open_database

    async def run() -> Result:
        async with open_database(settings, join=True) as (database, _):
            if migrated and not await has_schema(database):
                raise TargetError(
                    f"{database.description} is empty: `kapsa fleet serve` or `kapsa fleet migrate` prepares it"
                )
            return await work(database)

    return asyncio.run(run())
