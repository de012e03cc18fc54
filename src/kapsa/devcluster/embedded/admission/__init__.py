"""Admission: plugins and webhooks that may change or refuse a write."""
