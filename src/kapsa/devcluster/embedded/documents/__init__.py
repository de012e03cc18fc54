"""Documents that describe the server: discovery, OpenAPI, health, version."""
