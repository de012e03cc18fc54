"""The secrets step: the Secrets and ConfigMaps an environment is trusted with, and no others.

A commit from a fork gets no Secret until that commit is approved. If the approval is withdrawn, the copies
are deleted.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from kapsa.adapters.oci.credentials import RegistryCredentials, docker_config
from kapsa.environments.images.repository_rules import pull_credentials
from kapsa.environments.namespace_objects.copies import (
    CONFIG_MAP,
    COPIED_FROM,
    SECRET,
    Copies,
    Copy,
    MissingSourceError,
)
from kapsa.environments.namespace_objects.reserved_names import KEPT_BY_OPERATOR, RESERVED
from kapsa.environments.namespace_objects.secret_readers import pods_that_read, workloads_that_read
from kapsa.environments.resources import Registry
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.step import RETRY_SECONDS, Done, Outcome, StepFailure

__all__ = ["SecretsStep", "env_from", "pull_secret_name"]


class SecretsStep:
    """The step that copies Secrets into the namespace. Needs the namespace and the trust.

    Writes copies of Secrets and ConfigMaps, and the pull secret.
    """

    name: ClassVar[str] = "secrets"
    condition: ClassVar[str] = "NamespaceReady"
    phase: ClassVar[Phase] = "Pending"

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    async def run(self, visit: StepRun) -> Outcome:
        copies, readers = await _without_readers(visit, _desired_copies(visit))
        await self._copies.prune(visit, copies)  # first: what is withdrawn is deleted, whatever else fails
        if (refusal := _refusal(copies)) is not None:
            return refusal
        try:
            await self._copies.keep(visit, copies)
        except MissingSourceError as error:
            kind = error.copy.kind.rpartition("/")[2]
            return StepFailure(
                reason=f"{kind}Missing",
                message=str(error),
                object=f"{kind} {error.copy.name}",
                hint=f"Create the {kind} in namespace {error.copy.namespace}, or remove the reference to it.",
                after=None,
            )
        if not visit.trusted:
            return Done(
                "secrets are withheld: the commit comes from a fork and has not been approved",
                reason="SecretsWithheld",
            )
        return Done(f"namespace {visit.namespace} is ready{_note(visit, readers)}", reason="NamespaceReady")


async def _without_readers(visit: StepRun, copies: Sequence[Copy]) -> tuple[list[Copy], list[str]]:
    """Return the copies without the pull secret if something in the namespace would read it, and what that is.

    The next version is rendered nevertheless. It may not read the pull secret, so the copy is made once it runs.
    """
    readers: list[str] = []
    for copy in copies:
        if copy.origin != "registry":
            continue
        readers += workloads_that_read(visit, copy.target_name)
        live = visit.ctx.get(SECRET, copy.target_name, namespace=visit.namespace)
        if not readers and (live is None or COPIED_FROM not in (live["metadata"].get("labels") or {})):
            readers += await pods_that_read(visit, copy.target_name)
    if not readers:
        return list(copies), []
    visit.revisit_after = RETRY_SECONDS  # pods are not watched
    visit.ctx.event("Warning", "PullSecretWithheld", _withheld(readers), action="Copy")
    return [each for each in copies if each.origin != "registry"], readers


def _withheld(readers: Sequence[str]) -> str:
    more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
    return (
        f"the credentials to pull are withheld while {readers[0]}{more} would read them: remove the volume or the "
        "variable, and delete the pods and Jobs that still have it"
    )


def _note(visit: StepRun, readers: Sequence[str]) -> str:
    """Return a note for people whose private images cannot be pulled."""
    if readers:
        return f"; {_withheld(readers)}"
    registry = visit.registry
    if registry is None or registry.spec.auth is None or pull_secret_name(visit):
        return ""
    return f", without a pull secret: Registry {registry.name} has no credentials to pull (imagePullSecret.secretRef)"


def env_from(visit: StepRun) -> list[Manifest]:
    """Return the `envFrom` entries of containers: the Secrets and ConfigMaps that the environment names."""
    config = visit.environment.spec.config
    secrets = config.secret_refs if visit.trusted else ()
    return [
        *({"configMapRef": {"name": each.name}} for each in config.config_refs),
        *({"secretRef": {"name": each.name}} for each in secrets),
    ]


def pull_secret_name(visit: StepRun) -> str:
    """Return the name of the Secret for pulling images; empty if there is none."""
    registry = visit.registry
    if registry is None:
        return ""
    pull = registry.spec.image_pull_secret
    if not pull.generate_per_namespace:
        return pull.name
    return pull.name if visit.trusted and pull_credentials(registry, visit.team) is not None else ""


def _refusal(copies: Sequence[Copy]) -> StepFailure | None:
    """Return the failure for a copy whose name is reserved or used twice."""
    targets = Counter((copy.kind, copy.target_name) for copy in copies)
    for copy in copies:
        target = (copy.kind, copy.target_name)
        if target not in RESERVED and (targets[target] == 1 or copy.origin == "registry"):
            continue
        shown = f"{copy.kind.rpartition('/')[2]} {copy.name}"
        return StepFailure(
            reason="ObjectRefused",
            message=f"{shown} of namespace {copy.namespace} cannot be copied: {KEPT_BY_OPERATOR}",
            object=shown,
            hint="Rename it, and refer to the new name in the Project or the Environment.",
            after=None,
        )
    return None


def _desired_copies(visit: StepRun) -> list[Copy]:
    environment, project = visit.environment, visit.project
    copies = [
        Copy(kind=CONFIG_MAP, namespace=environment.namespace, name=each.name, origin="environment")
        for each in environment.spec.config.config_refs
    ]
    if not visit.trusted:
        return copies
    copies += [
        Copy(kind=SECRET, namespace=project.namespace, name=each.name, origin="project")
        for each in project.spec.secrets
    ]
    shared = {copy.name for copy in copies if copy.kind == SECRET}
    copies += [
        Copy(kind=SECRET, namespace=environment.namespace, name=each.name, origin="environment")
        for each in environment.spec.config.secret_refs
        if each.name not in shared  # the project's Secret of that name, which every environment gets
    ]
    return [*copies, *_pull_secrets(visit)]


def _pull_secrets(visit: StepRun) -> list[Copy]:
    """Return the copy of the credentials to pull, if the Registry has any for this team."""
    registry = visit.registry
    if registry is None or not registry.spec.image_pull_secret.generate_per_namespace:
        return []
    reference = pull_credentials(registry, visit.team)
    if reference is None:
        return []
    return [
        Copy(
            kind=SECRET,
            namespace=reference.namespace,
            name=reference.name,
            origin="registry",
            target=registry.spec.image_pull_secret.name,
            content=lambda source: _pull_secret(source, registry),
        )
    ]


def _pull_secret(source: Manifest, registry: Registry) -> Manifest:
    """Return a Secret with the credentials of this registry only, in the form the kubelet expects."""
    endpoint = registry.spec.endpoint
    config = docker_config(endpoint, RegistryCredentials.from_secret(source, endpoint))
    encoded = base64.b64encode(config.encode()).decode()
    return {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": encoded}}
