"""What is changed in every repository's objects so that they can live in an environment: no tokens, pulled images, Jobs that stay.

Each is what nearly every chart has and nobody means by it; refusing them would refuse what `helm create` makes. Whoever wrote
the objects is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.pod_templates import entries, pod_spec
from kapsa.environments.render.inputs import Injected

__all__ = ["adapt"]


def adapt(objects: Sequence[Manifest], injected: Injected) -> list[str]:
    """Change the objects in place. Returns what somebody should know."""
    told: list[str] = []
    for each in objects:
        told += _without_token(each)
        told += _staying(each)
        if injected.pull_secret:
            _pulling(each, injected.pull_secret)
    return told


def _without_token(manifest: Manifest) -> Iterator[str]:
    """Nothing in an environment has business with the API server, and a token is mounted unless somebody says no."""
    if manifest.get("kind") == "ServiceAccount":
        if manifest.get("automountServiceAccountToken"):
            yield f"no token of {display_name(manifest)} is mounted"
        manifest["automountServiceAccountToken"] = False
    spec = pod_spec(manifest)
    if spec is not None and spec.get("automountServiceAccountToken"):
        spec["automountServiceAccountToken"] = False
        yield f"no token is mounted in pods of {display_name(manifest)}"


def _staying(manifest: Manifest) -> Iterator[str]:
    """A Job that removes itself would be missed, made anew and run again, for ever."""
    spec = manifest.get("spec")
    if manifest.get("kind") == "Job" and isinstance(spec, dict) and "ttlSecondsAfterFinished" in spec:
        del spec["ttlSecondsAfterFinished"]
        yield f"{display_name(manifest)} stays when it is done: ttlSecondsAfterFinished is left out"


def _pulling(manifest: Manifest, secret: str) -> None:
    """Pods of another account than the namespace's own, or with other secrets, would not get at the project's images."""
    spec = pod_spec(manifest)
    if spec is None:
        return
    named = list(entries(spec, "imagePullSecrets"))
    if all(each.get("name") != secret for each in named):
        spec["imagePullSecrets"] = [*named, {"name": secret}]
