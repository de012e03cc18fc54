"""The schema's revisions, in Alembic's layout."""
