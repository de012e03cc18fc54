"""The metadata that all tables share, and the names that they give to constraints."""

import importlib
import pkgutil

from sqlalchemy import MetaData, func

import kapsa.fleet.infrastructure.postgres.tables as package

__all__ = ["NOW", "declared_metadata", "metadata"]

metadata = MetaData(
    schema="fleet",
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    },
)

NOW = func.fleet.now()
"""The time in SQL. `now()` is the start of the transaction, and no test could set it."""


def declared_metadata() -> MetaData:
    """Return the metadata with the tables of every area."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return metadata
