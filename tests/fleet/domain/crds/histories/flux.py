"""Changes in the manner of Flux's."""

from tests.fleet.domain.crds.histories.change import (
    BREAKING,
    SAFE,
    STRING,
    WARNING,
    CrdHistory,
    crd,
    list_of,
    object_of,
    rule,
    spec,
    version,
)

_DURATION = {**STRING, "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"}
_CHART = object_of({"name": STRING}, required=["name"])
_ONE_OF_BOTH = "(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) && has(self.chartRef))"
_WITH_PATCHES = object_of(
    {"path": STRING, "patches": list_of(STRING), "patchesStrategicMerge": list_of(STRING)}
)
_WITHOUT = object_of({"path": STRING, "patches": list_of(STRING)})


def _resource(spec_schema: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": {"spec": spec_schema}}


CHANGES = [
    CrdHistory(
        "intervals are checked by a pattern",
        spec({"interval": STRING}, required=["interval"]),
        spec({"interval": _DURATION}, required=["interval"]),
        ["breaking pattern-changed v1:spec.interval"],
        SAFE,
    ),
    CrdHistory(
        "2.3 refers to a chart, or describes one",
        spec({"chart": _CHART}, required=["chart"]),
        crd(version("v1", _resource(rule(object_of({"chart": _CHART, "chartRef": _CHART}), _ONE_OF_BOTH)))),
        ["breaking cel-rule-added v1:spec"],
        BREAKING,
    ),
    CrdHistory(
        "the same rule in another layout",
        crd(version("v1", _resource(rule(object_of({"chart": _CHART, "chartRef": _CHART}), _ONE_OF_BOTH)))),
        crd(
            version(
                "v1",
                _resource(
                    rule(
                        object_of({"chart": _CHART, "chartRef": _CHART}),
                        _ONE_OF_BOTH.replace(" || ", "\n  ||  ").replace(" && ", "&&"),
                    )
                ),
            )
        ),
        [],
        SAFE,
    ),
    CrdHistory(
        "2.3 verifies with notation",
        spec({"verify": object_of({"provider": {**STRING, "enum": ["cosign"], "default": "cosign"}})}),
        spec(
            {
                "verify": object_of(
                    {"provider": {**STRING, "enum": ["cosign", "notation"], "default": "cosign"}}
                )
            }
        ),
        ["warning enum-value-added v1:spec.verify.provider"],
        BREAKING,
    ),
    CrdHistory(
        "2.4 signs in to git with the identity of Azure",
        spec({"url": STRING}),
        spec({"url": STRING, "provider": {**STRING, "enum": ["generic", "azure"]}}),
        [],
        BREAKING,
    ),
    CrdHistory(
        "v1 of GitRepository has no choice of the implementation",
        crd(version("v1", _resource(object_of({"url": STRING, "gitImplementation": STRING})))),
        crd(version("v1", _resource(object_of({"url": STRING})))),
        ["breaking field-removed v1:spec.gitImplementation"],
        SAFE,
        one_way=True,
    ),
    CrdHistory(
        "v1 of Kustomization is stored, and lacks the old kinds of patches",
        crd(version("v1beta2", _resource(_WITH_PATCHES))),
        crd(version("v1beta2", _resource(_WITH_PATCHES), storage=False), version("v1", _resource(_WITHOUT))),
        [
            "breaking field-removed v1beta2→v1:spec.patchesStrategicMerge",
            "warning storage-moved spec.versions[v1].storage",
        ],
        BREAKING,
        one_way=True,
    ),
    CrdHistory(
        "v1 is served next to v1beta2, which is deprecated",
        crd(version("v1beta2", _resource(_WITH_PATCHES))),
        crd(
            version("v1beta2", _resource(_WITH_PATCHES), deprecated=True),
            version("v1", _resource(_WITHOUT), storage=False),
        ),
        [
            "warning version-lossy spec.versions[v1]",
            "warning version-deprecated spec.versions[v1beta2].deprecated",
        ],
        BREAKING,
    ),
    CrdHistory(
        "modes of verification are renamed",
        spec({"mode": {**STRING, "enum": ["head"]}}),
        spec({"mode": {**STRING, "enum": ["head", "HEAD", "Tag", "TagAndHEAD"]}}),
        ["warning enum-value-added v1:spec.mode"],
        BREAKING,
    ),
    CrdHistory(
        "a kind of source is added to the references",
        spec(
            {
                "sourceRef": object_of(
                    {"kind": {**STRING, "enum": ["GitRepository", "Bucket"]}}, required=["kind"]
                )
            }
        ),
        spec(
            {
                "sourceRef": object_of(
                    {"kind": {**STRING, "enum": ["OCIRepository", "GitRepository", "Bucket"]}},
                    required=["kind"],
                )
            }
        ),
        ["warning enum-value-added v1:spec.sourceRef.kind"],
        BREAKING,
    ),
    CrdHistory(
        "an alert has no status any more",
        crd(version("v1", subresources={"status": {}})),
        crd(version("v1")),
        ["breaking subresource-removed spec.versions[v1].subresources.status"],
        WARNING,
    ),
    CrdHistory(
        "the name of a release is limited as Helm limits it",
        spec({"releaseName": {**STRING, "minLength": 1}}),
        spec({"releaseName": {**STRING, "minLength": 1, "maxLength": 53}}),
        ["breaking bound-tightened v1:spec.releaseName"],
        SAFE,
    ),
]
