"""Image registries: references, credentials, and a client of the OCI distribution API."""
