"""Changes in the manner of Istio's."""

from tests.fleet.domain.crds.histories.change import (
    BREAKING,
    INTEGER,
    SAFE,
    STRING,
    WARNING,
    CrdHistory,
    crd,
    list_of,
    map_of,
    object_of,
    rule,
    spec,
    version,
)

_RESOLUTIONS = ["NONE", "STATIC", "DNS"]
_SELECTORS = {"selector": object_of({}), "targetRefs": list_of(STRING)}
_ONE_SELECTOR = "(has(self.selector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1"
_HEADER = {"exact": STRING, "prefix": STRING, "regex": STRING}
_BRANCHES = [
    {"not": {"anyOf": [{"required": [name]} for name in _HEADER]}},
    *({"required": [name]} for name in _HEADER),
]

CHANGES = [
    CrdHistory(
        "1.22 serves v1 next to v1beta1 and v1alpha3",
        crd(version("v1alpha3", storage=False), version("v1beta1")),
        crd(version("v1alpha3", storage=False), version("v1beta1"), version("v1", storage=False)),
        [],
        BREAKING,
    ),
    CrdHistory(
        "v1 is stored",
        crd(version("v1beta1"), version("v1", storage=False)),
        crd(version("v1beta1", storage=False), version("v1")),
        ["warning storage-moved spec.versions[v1].storage"],
        WARNING,
    ),
    CrdHistory(
        "hosts are required, and at most 256",
        spec({"hosts": list_of(STRING)}),
        spec({"hosts": list_of(STRING, minItems=1, maxItems=256)}, required=["hosts"]),
        [
            "breaking bound-tightened v1:spec.hosts",
            "breaking bound-tightened v1:spec.hosts",
            "breaking required-added v1:spec.hosts",
        ],
        SAFE,
    ),
    CrdHistory(
        "names are resolved in turn",
        spec({"resolution": {**STRING, "enum": _RESOLUTIONS}}),
        spec({"resolution": {**STRING, "enum": [*_RESOLUTIONS, "DNS_ROUND_ROBIN"]}}),
        ["warning enum-value-added v1:spec.resolution"],
        BREAKING,
    ),
    CrdHistory(
        "a policy has a selector or targets, not both",
        crd(version("v1", {"type": "object", "properties": {"spec": object_of(_SELECTORS)}})),
        crd(
            version(
                "v1", {"type": "object", "properties": {"spec": rule(object_of(_SELECTORS), _ONE_SELECTOR)}}
            )
        ),
        ["breaking cel-rule-added v1:spec"],
        SAFE,
    ),
    CrdHistory(
        "durations are at least a millisecond",
        spec({"timeout": STRING}),
        spec({"timeout": rule(STRING, "duration(self) >= duration('1ms')")}),
        ["breaking cel-rule-added v1:spec.timeout"],
        SAFE,
    ),
    CrdHistory(
        "a match is one of three",
        spec({"match": object_of(_HEADER)}),
        spec({"match": object_of(_HEADER, oneOf=_BRANCHES)}),
        ["breaking branches-narrowed v1:spec.match"],
        SAFE,
    ),
    CrdHistory(
        "the generator writes the branches in another order",
        spec({"match": object_of(_HEADER, oneOf=_BRANCHES)}),
        spec({"match": object_of(_HEADER, oneOf=_BRANCHES[::-1])}),
        [],
        SAFE,
    ),
    CrdHistory(
        "labels of selectors are limited",
        spec({"matchLabels": map_of(STRING)}),
        spec({"matchLabels": map_of({**STRING, "maxLength": 63}, maxProperties=4096)}),
        ["breaking bound-tightened v1:spec.matchLabels", "breaking bound-tightened v1:spec.matchLabels.*"],
        SAFE,
    ),
    CrdHistory(
        "1.9 adds custom actions",
        spec({"action": {**STRING, "enum": ["ALLOW", "DENY", "AUDIT"]}}),
        spec({"action": {**STRING, "enum": ["ALLOW", "DENY", "AUDIT", "CUSTOM"]}}),
        ["warning enum-value-added v1:spec.action"],
        BREAKING,
    ),
    CrdHistory(
        "the issuer of a token is required",
        spec({"jwtRules": list_of(object_of({"issuer": STRING}))}),
        spec({"jwtRules": list_of(object_of({"issuer": {**STRING, "minLength": 1}}, required=["issuer"]))}),
        [
            "breaking bound-tightened v1:spec.jwtRules[*].issuer",
            "breaking required-added v1:spec.jwtRules[*].issuer",
        ],
        SAFE,
    ),
    CrdHistory(
        "ports keep their range",
        spec({"port": {**INTEGER, "maximum": 4294967295, "minimum": 0}}),
        spec({"port": {**INTEGER, "maximum": 4294967295, "minimum": 0, "format": "int64"}}),
        [],
        SAFE,
    ),
]
