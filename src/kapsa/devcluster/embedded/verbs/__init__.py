"""Verbs: create, update, patch, delete, list and watch, from a typed request to the store."""
