"""Admission: plugins and webhooks that may change or reject a write."""
