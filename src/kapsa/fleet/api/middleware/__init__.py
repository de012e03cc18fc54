"""Layers around every route, from the outside in: observation, access, idempotency."""
