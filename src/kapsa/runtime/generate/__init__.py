"""Generators: manifests and projects derived from Python declarations.

`crd` builds CustomResourceDefinitions from resource classes, with `schema` for the types, `constraints` for
the annotations on fields and `docstrings` for the descriptions. `rbac` derives the smallest set of rights
from what an operator declares, and `audit` compares them with the calls that it made. `manifest` writes YAML.
`scaffold` creates a new operator project from `templates/`. Nothing here talks to a cluster.
"""
