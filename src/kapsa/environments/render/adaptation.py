"""Changes to the objects of a repository so that they can run in an environment.

Nearly every chart has these defaults, and rejecting them would reject what `helm create` generates. A warning
reports each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.pod_templates import entries, pod_spec
from kapsa.environments.render.inputs import Injected

__all__ = ["adapt"]


def adapt(objects: Sequence[Manifest], injected: Injected) -> list[str]:
    """Change the objects in place. Return a warning for each change."""
    warnings: list[str] = []
    for each in objects:
        warnings += _remove_token(each)
        warnings += _keep_finished_job(each)
        if injected.pull_secret:
            _add_pull_secret(each, injected.pull_secret)
    return warnings


def _remove_token(manifest: Manifest) -> Iterator[str]:
    """Disable service account tokens, which are mounted by default.

    Environments do not use the API server.
    """
    if manifest.get("kind") == "ServiceAccount":
        if manifest.get("automountServiceAccountToken"):
            yield f"the token of {display_name(manifest)} is not mounted"
        manifest["automountServiceAccountToken"] = False
    spec = pod_spec(manifest)
    if spec is not None and spec.get("automountServiceAccountToken"):
        spec["automountServiceAccountToken"] = False
        yield f"service account tokens are not mounted in pods of {display_name(manifest)}"


def _keep_finished_job(manifest: Manifest) -> Iterator[str]:
    """Keep Jobs after they finish. One that deletes itself would be created and run again and again."""
    spec = manifest.get("spec")
    if manifest.get("kind") == "Job" and isinstance(spec, dict) and "ttlSecondsAfterFinished" in spec:
        del spec["ttlSecondsAfterFinished"]
        yield f"{display_name(manifest)} is kept after it finishes: ttlSecondsAfterFinished is ignored"


def _add_pull_secret(manifest: Manifest, secret: str) -> None:
    """Add the pull secret to pods.

    Those with their own service account or secrets could not pull the project's images.
    """
    spec = pod_spec(manifest)
    if spec is None:
        return
    listed = list(entries(spec, "imagePullSecrets"))
    if all(each.get("name") != secret for each in listed):
        spec["imagePullSecrets"] = [*listed, {"name": secret}]
