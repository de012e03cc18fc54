"""Charts: where they are published, and what they contain.

- `published_charts`: fetches charts from HTTP repositories and OCI registries, and inspects archives.
- `facts`: the CRDs, cluster-scoped objects and webhooks of a rendered chart.
- `scopes`: the kinds that are cluster-scoped.
"""
