"""Implementations of the ports: PostgreSQL, Helm, clusters, charts, sealed secrets, mail."""
