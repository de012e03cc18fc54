"""Alembic's entry point: runs revisions on the connection that `kapsa.fleet.infrastructure.postgres.migration` opened."""

from alembic import context

from kapsa.fleet.infrastructure.postgres.tables.metadata import declared_metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=declared_metadata(),
    version_table_schema="fleet",
    include_schemas=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
