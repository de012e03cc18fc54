"""The objects of an environment: rendered from a repository, adapted, and filtered.

    environment_renderer → cache → renderer → filter

- `environment_renderer`: the entry point: checks out the commit, renders it once, and filters the result.
- `renderer`: renders a chart (`helm`), a kustomization or plain manifests; `image` makes the objects of a
  plain image.
- `injection`, `adaptation`: put the image, variables and host in, and change what cannot run in an
  environment.
- `generated_values`: keeps what a chart generates, such as passwords; `generated_segments` finds them in a text.
- `filter`: rejects everything that a repository may not put into the environment's namespace.

Nothing in a repository is trusted: `kapsa.adapters.manifests` reads it within limits, and helm and kustomize
run without a cluster, a network or a home directory.
"""
