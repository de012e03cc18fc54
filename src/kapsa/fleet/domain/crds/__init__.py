"""The comparison of CRDs: what an upgrade would do to the objects that exist.

- `definitions`: a CRD and its schemas, parsed and without prose.
- `findings`: one difference, with rule, path, severity, reason and remedy.
- `comparison`: two CRDs, forward and back; can the step be undone?
- `versions`: the versions of two CRDs: served, stored, subresources.
- `schemas`: two schemas, by a walk over the nodes that differ; `changes`, `facets`, `branches`, `rules` (with
  `cel_tokens`) and `list_types` judge one node.
- `ratchet`: the severity on a cluster of a given version.
- `summary`: findings grouped, for a status.
- `guides`: migration guides on the way from one version to another.
"""

from kapsa.fleet.domain.crds.comparison import CrdComparison, compare_crds
from kapsa.fleet.domain.crds.definitions import CrdDefinition, SchemaNode, parse_crd, parse_schema
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity, CrdFinding, worst
from kapsa.fleet.domain.crds.guides import MigrationGuide, guides_between
from kapsa.fleet.domain.crds.ratchet import has_ratcheting, on_cluster
from kapsa.fleet.domain.crds.schemas import compare_schemas
from kapsa.fleet.domain.crds.summary import FindingGroup, FindingSummary, summarize

__all__ = [
    "ChangeRule",
    "ChangeSeverity",
    "CrdComparison",
    "CrdDefinition",
    "CrdFinding",
    "FindingGroup",
    "FindingSummary",
    "MigrationGuide",
    "SchemaNode",
    "compare_crds",
    "compare_schemas",
    "guides_between",
    "has_ratcheting",
    "on_cluster",
    "parse_crd",
    "parse_schema",
    "summarize",
    "worst",
]
