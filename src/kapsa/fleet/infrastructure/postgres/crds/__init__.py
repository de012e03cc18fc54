"""CRDs in PostgreSQL."""
