"""The namespace step: a namespace that belongs to this environment alone."""

from __future__ import annotations

from typing import ClassVar

from kapsa.environments.names import (
    BRANCH,
    ENVIRONMENT,
    MANAGED_BY,
    OPERATOR,
    PROJECT,
    TEAM,
    label_value,
    namespace_name,
)
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.environments.tenancy.namespaces import (
    ForeignNamespaceError,
    NamespaceChangingError,
    NamespaceIntendedError,
    claim,
)

__all__ = ["NamespaceStep", "identity_labels"]


class NamespaceStep:
    """The step that writes the Namespace, and both its name and UID to the status. Needs the Project."""

    name: ClassVar[str] = "namespace"
    condition: ClassVar[str] = "NamespaceReady"
    phase: ClassVar[Phase] = "Pending"

    async def run(self, visit: StepRun) -> Outcome:
        environment, project = visit.environment, visit.project
        name = namespace_name(project.namespace, project.name, environment.name)
        level = visit.settings.pod_security
        labels = {
            **identity_labels(visit),
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": "restricted",
        }
        branch = environment.spec.source.branch
        try:
            visit.claimed = await claim(
                visit.ctx, name, visit.settings, labels=labels, annotations={BRANCH: branch} if branch else {}
            )
        except ForeignNamespaceError as error:
            return StepFailure(
                reason=error.reason,
                message=str(error),
                object=f"Namespace {name}",
                hint="Rename the Environment, or ask an administrator to delete that namespace.",
                after=None,
            )
        except NamespaceIntendedError as error:
            visit.ctx.status.rollout = None  # nothing of an earlier rollout is left in a new namespace
            return Waiting(message=str(error), reason=error.reason, after=0)
        except NamespaceChangingError as error:
            return Waiting(message=str(error), reason=error.reason)
        return Done(f"namespace {name} is ready", reason="NamespaceReady")


def identity_labels(visit: StepRun) -> dict[str, str]:
    """Return the labels for people and selectors. Ownership is decided by the UID alone.

    Ownership is decided by the UID alone.
    """
    environment, project = visit.environment, visit.project
    labels = {
        MANAGED_BY: OPERATOR,
        TEAM: label_value(project.namespace),
        PROJECT: label_value(project.name),
        ENVIRONMENT: label_value(environment.name),
        BRANCH: label_value(environment.spec.source.branch or ""),
    }
    return {name: value for name, value in labels.items() if value}
