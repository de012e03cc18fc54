"""The trial of a version's CRDs: a dry run of what the rollout applies before the chart.

Only the API server itself knows its budget for validation rules, and which schemas it takes for structural.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.adapters.redaction import printable
from kapsa.fleet.domain.rollout.plans import PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.operations.crds.crd_changes import write_crd
from kapsa.fleet.infrastructure.operations.crds.crd_plan import CRD, plan_crd
from kapsa.fleet.infrastructure.operations.crds.crd_record import CrdHandover
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused
from kapsa.runtime import ApiError, BadRequest, Client, Conflict, Forbidden, NotFound

__all__ = ["try_crds"]

_LONGEST = 600


async def try_crds(
    client: Client, crds: Iterable[Mapping[str, Any]], live: ReleaseRef, following: ReleaseRef
) -> list[PreflightProblem]:
    """Return a problem for each CRD that the API server would reject."""
    problems: list[PreflightProblem] = []
    for definition in crds:
        name = str(definition["metadata"].get("name", ""))
        plan = plan_crd(definition, await _live(client, name), CrdHandover(live, following))
        try:
            await write_crd(client, plan.body, plan.live, dry_run=True)
        except ClusterRefused as error:
            problems.append(_problem("CrdInvalid", str(error)))
        except Forbidden as error:
            problems.append(_problem("Rights", f"the CRD {name}: {error.message}"))
        except (BadRequest, Conflict) as error:
            problems.append(_problem("CrdInvalid", f"the CRD {name}: {_text(error)}"))
    return problems


async def _live(client: Client, name: str) -> dict[str, Any] | None:
    try:
        live: dict[str, Any] = await client.get(CRD, name)
    except NotFound:
        return None
    return live


def _text(error: ApiError) -> str:
    return error.message or type(error).__name__


def _problem(check: str, message: str) -> PreflightProblem:
    return PreflightProblem(check, " ".join(printable(message).split())[:_LONGEST])
