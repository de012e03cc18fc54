"""Image registries: the OCI distribution API.

- `registry`: `ImageRegistry`, a client of one registry.
- `registries`: clients of many registries, and a cache of digests.
- `chart_artifact`: Helm charts in a registry.
- `image_reference`: names of images.
- `credentials`: logins from a Secret.
"""
