"""Charts: where they are published, and what they contain.

- `published_charts`: fetches charts from HTTP repositories and OCI registries, and inspects archives.
- `facts`: the CRDs, cluster-scoped objects and webhooks of a rendered chart.
- `release_renderer`: renders charts that are kept by digest.
- `suffixed_names`: names that no other release of the chart has.
- `second_release`: the second release of blue-green, or the reason why a chart cannot have one.
- `kubernetes_versions`: a version of Kubernetes that a chart accepts.
- `value_texts`: the texts in values, which errors must not quote.
- `differences`: the objects in which two renders differ.
- `scopes`: the kinds that are cluster-scoped.
"""
