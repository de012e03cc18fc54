"""Schemas: validation, pruning and defaulting of objects."""
