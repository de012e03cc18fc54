"""Generators: CRDs from types, RBAC from declarations, manifests, and new projects."""
