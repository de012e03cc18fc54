"""Webhooks: admission and conversion, their server, its certificates and its registration."""
