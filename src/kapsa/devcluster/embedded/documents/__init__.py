"""Documents that describe the server itself: discovery, OpenAPI, health and version. `router` serves them."""
