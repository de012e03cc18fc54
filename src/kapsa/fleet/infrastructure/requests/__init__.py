"""State of requests that all replicas share: idempotency keys and rate limits."""
