"""Facts about a chart that decide how it can be rolled out, from renders under two names of the release."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kapsa.adapters.helm.chart_metadata import ChartMetadata
from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.operators import ChartFacts
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import Kinds, cluster_scoped_kinds, is_crd
from kapsa.fleet.infrastructure.charts.second_release import blue_green_refusal
from kapsa.fleet.orchestrator.ports.charts import ChartCrd

__all__ = ["Renders", "chart_crds", "chart_facts"]

Objects = tuple[dict[str, Any], ...]
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_MOST_CRDS = 200


class Renders(msgspec.Struct, frozen=True):
    """Renders of one chart with the same values, hooks included."""

    release: ReleaseRef
    objects: Objects
    renamed: Objects
    """Under another name of the release."""
    deterministic: bool
    """True if a second render under the same name is the same text."""


def chart_crds(crds: Iterable[Mapping[str, Any]], rendered: Objects) -> tuple[ChartCrd, ...]:
    """Return the CRDs of a chart, in `crds/` and in templates.

    Raises InvalidInput if a CRD has no valid name, is there twice, or there are too many.
    """
    located = [ChartCrd(_name(each), "crds", dict(each)) for each in crds if is_crd(each)]
    located += [ChartCrd(_name(each), "templates", each) for each in rendered if is_crd(each)]
    names = [each.name for each in located]
    if len(located) > _MOST_CRDS:
        raise InvalidInput(f"the chart has {len(located)} CRDs, more than {_MOST_CRDS}")
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"the chart has the CRD {name} more than once: in crds/, in templates, or in both"
            )
    return tuple(sorted(located, key=lambda each: each.name))


def chart_facts(metadata: ChartMetadata, crds: tuple[ChartCrd, ...], renders: Renders) -> ChartFacts:
    """Return the facts about a chart."""
    kinds = cluster_scoped_kinds(each.definition for each in crds)
    scoped = _cluster_scoped(renders.objects, kinds)
    return ChartFacts(
        crds_in_crds=tuple(each.name for each in crds if each.location == "crds"),
        crds_in_templates=tuple(each.name for each in crds if each.location == "templates"),
        cluster_scoped=tuple(sorted(scoped)),
        webhooks=tuple(sorted({*_webhooks(renders.objects), *_conversions(crds)})),
        deterministic=renders.deterministic,
        names_follow_release=not (scoped & _cluster_scoped(renders.renamed, kinds)),
        blue_green_refusal=blue_green_refusal(renders.objects, renders.release, kinds),
        kube_version=metadata.kube_version,
        app_version=metadata.app_version,
    )


def _cluster_scoped(objects: Objects, kinds: Kinds) -> set[str]:
    return {_label(each) for each in objects if _group_kind(each) in kinds and not is_crd(each)}


def _webhooks(objects: Objects) -> set[str]:
    return {_label(each) for each in objects if each["kind"] in _WEBHOOKS}


def _conversions(crds: tuple[ChartCrd, ...]) -> set[str]:
    return {
        f"CustomResourceDefinition/{each.name}"
        for each in crds
        if _dictionary(_dictionary(each.definition.get("spec")).get("conversion")).get("strategy")
        == "Webhook"
    }


def _group_kind(manifest: Mapping[str, Any]) -> tuple[str, str]:
    group, slash, _ = str(manifest["apiVersion"]).partition("/")
    return (group if slash else "", str(manifest["kind"]))


def _label(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['kind']}/{manifest['metadata'].get('name', '')}"


def _name(crd: Mapping[str, Any]) -> str:
    name, spec = crd["metadata"].get("name"), _dictionary(crd.get("spec"))
    expected = f"{_dictionary(spec.get('names')).get('plural')}.{spec.get('group')}"
    if not isinstance(name, str) or name != expected:
        raise InvalidInput(f"the chart has a CRD with the name {name!r}, which must be {expected!r}")
    return name


def _dictionary(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
