"""Charts: where they are published, and what they contain.

- `published_charts`: fetches charts from HTTP repositories and OCI registries, and inspects archives.
- `facts`: the CRDs, cluster-scoped objects and webhooks of a rendered chart.
- `release_renderer`: renders charts that are kept by digest.
- `value_texts`: the texts in values, which errors must not quote.
- `differences`: the objects in which two renders differ.
- `scopes`: the kinds that are cluster-scoped.
"""
