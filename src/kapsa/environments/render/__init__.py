"""From a repository to objects: charts, kustomizations, manifests and plain images, with an environment's own put in, filtered.

    environment_renderer → cache → renderer (one of helm · kustomize · manifests · image; transform, adapt) → filter (routing, pod_security)

What comes from a repository is nobody's word: yaml_documents reads it within limits, the tools run without a cluster, a
network or a home, and the filter lets through only what may be in the environment's namespace.
"""

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.environments.render.cache import RenderCache
from kapsa.environments.render.environment_renderer import EnvironmentRenderer
from kapsa.environments.render.filter import (
    ALLOWED_KINDS,
    FilterRules,
    ObjectsRefused,
    Refusal,
    filter_objects,
)
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer

__all__ = [
    "ALLOWED_KINDS",
    "EnvironmentRenderer",
    "FilterRules",
    "Injected",
    "Manifest",
    "ObjectsRefused",
    "Refusal",
    "RenderCache",
    "RenderFailed",
    "Renderer",
    "filter_objects",
]
