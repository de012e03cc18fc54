"""State of requests that all replicas share: idempotency keys, rate limits and browser sessions."""
