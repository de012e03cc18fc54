"""The metadata that all tables share, and the names that they give to constraints."""

import importlib
import pkgutil

from sqlalchemy import Column, DateTime, MetaData, func, text

import kapsa.fleet.infrastructure.postgres.tables as package

__all__ = ["MOMENT", "NOW", "declared_metadata", "metadata", "moment_of_insert"]

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

MOMENT = DateTime(timezone=True)
"""The type of every time in the schema."""
NOW = func.fleet.now()
"""The time in SQL. `now()` is the start of the transaction, and no test could set it."""


def moment_of_insert(name: str) -> Column[object]:
    """Return a column with the time at which its row was inserted, unless another one is given."""
    return Column(name, MOMENT, nullable=False, server_default=text("fleet.now()"))


def declared_metadata() -> MetaData:
    """Return the metadata with the tables of every area."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return metadata
