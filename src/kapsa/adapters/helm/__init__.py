"""Helm charts that are not trusted.

- `chart_archive`: reads an archive within limits, and refuses entries that could do harm.
- `chart_metadata`: Chart.yaml.
- `chart_repository`: a client of HTTP chart repositories.
- `linter`, `renderer`: lint and render a chart with the real helm, in isolation.
- `release_secret`: the releases that helm has stored in a cluster.

`_values_schema` decides whether helm may validate the values, since a schema can refer to other files and
servers.
"""
