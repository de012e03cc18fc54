"""PostgreSQL: the database of the manager.

- `database`: connections, transactions and the shared clock.
- `embedded`, `programs`, `unprivileged`: the server that runs when no database is configured.
- `migration`, `migrations`: the schema, from revision to revision.
- `tables`: the schema as SQLAlchemy Core tables.
"""
