"""Admission policies in CEL: which requests they match, and what their expressions decide."""
