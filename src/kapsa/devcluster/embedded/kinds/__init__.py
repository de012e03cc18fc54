"""Kinds: the served resources, their schemas, names, versions and selectors."""
