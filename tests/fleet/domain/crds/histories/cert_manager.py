"""Changes in the manner of cert-manager's."""

from tests.fleet.domain.crds.histories.change import (
    BREAKING,
    INTEGER,
    SAFE,
    STRING,
    CrdHistory,
    crd,
    list_of,
    map_of,
    object_of,
    spec,
    version,
)

_ALGORITHM = {**STRING, "enum": ["RSA", "ECDSA"]}
_WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"service": {"name": "webhook", "namespace": "cert-manager"}}},
}
_OLD = [version(name, storage=False) for name in ("v1alpha2", "v1alpha3", "v1beta1")]
_UNSERVED = [version(name, storage=False, served=False) for name in ("v1alpha2", "v1alpha3", "v1beta1")]
_KUBERNETES_AUTH = {"role": STRING, "secretRef": object_of({"name": STRING})}

CHANGES = [
    CrdHistory(
        "1.6 stops serving the versions before v1",
        crd(*_OLD, version("v1"), conversion=_WEBHOOK),
        crd(*_UNSERVED, version("v1"), conversion=_WEBHOOK),
        [
            "breaking version-unserved spec.versions[v1alpha2].served",
            "breaking version-unserved spec.versions[v1alpha3].served",
            "breaking version-unserved spec.versions[v1beta1].served",
        ],
        SAFE,
    ),
    CrdHistory(
        "1.7 removes them while objects are still stored in one",
        crd(*_UNSERVED, version("v1"), stored=["v1alpha2", "v1"]),
        crd(version("v1")),
        ["breaking stored-version-removed spec.versions[v1alpha2]"],
        SAFE,
    ),
    CrdHistory(
        "1.7 removes them after the migration",
        crd(*_UNSERVED, version("v1"), stored=["v1"]),
        crd(version("v1")),
        [],
        SAFE,
    ),
    CrdHistory(
        "0.15 converts with a webhook",
        crd(version("v1alpha2")),
        crd(version("v1alpha2"), version("v1alpha3", storage=False), conversion=_WEBHOOK),
        ["warning conversion-changed spec.conversion"],
        BREAKING,
    ),
    CrdHistory(
        "1.3 adds Ed25519 keys",
        spec({"privateKey": object_of({"algorithm": _ALGORITHM})}),
        spec({"privateKey": object_of({"algorithm": {**STRING, "enum": ["RSA", "ECDSA", "Ed25519"]}})}),
        ["warning enum-value-added v1:spec.privateKey.algorithm"],
        BREAKING,
    ),
    CrdHistory(
        "1.5 adds a template of the Secret",
        spec({"secretName": STRING}, required=["secretName"]),
        spec(
            {"secretName": STRING, "secretTemplate": object_of({"labels": map_of(STRING)})},
            required=["secretName"],
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "1.7 adds output formats with a required type below a new list",
        spec({}),
        spec(
            {
                "additionalOutputFormats": list_of(
                    object_of({"type": {**STRING, "enum": ["DER", "CombinedPEM"]}}, required=["type"])
                )
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "1.12 signs in to Vault with a service account, so that the Secret is optional",
        spec({"kubernetes": object_of(_KUBERNETES_AUTH, required=["role", "secretRef"])}),
        spec(
            {
                "kubernetes": object_of(
                    {**_KUBERNETES_AUTH, "serviceAccountRef": object_of({"name": STRING}, required=["name"])},
                    required=["role"],
                )
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "1.14 adds profiles of keystores",
        spec({"pkcs12": object_of({"create": {"type": "boolean"}}, required=["create"])}),
        spec(
            {
                "pkcs12": object_of(
                    {
                        "create": {"type": "boolean"},
                        "profile": {**STRING, "enum": ["LegacyRC2", "LegacyDES", "Modern2023"]},
                    },
                    required=["create"],
                )
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "1.16 makes the region of Route53 optional",
        spec({"route53": object_of({"region": STRING}, required=["region"])}),
        spec({"route53": object_of({"region": STRING})}),
        [],
        BREAKING,
    ),
    CrdHistory(
        "the number of kept revisions gets a lower bound",
        spec({"revisionHistoryLimit": {**INTEGER, "format": "int32"}}),
        spec({"revisionHistoryLimit": {**INTEGER, "format": "int32", "minimum": 1}}),
        ["breaking bound-tightened v1:spec.revisionHistoryLimit"],
        SAFE,
    ),
    CrdHistory(
        "the preferred chain is limited to 64 characters",
        spec({"preferredChain": STRING}),
        spec({"preferredChain": {**STRING, "maxLength": 64}}),
        ["breaking bound-tightened v1:spec.preferredChain"],
        SAFE,
    ),
    CrdHistory(
        "a rewrite of all descriptions",
        spec(
            {
                "dnsNames": {
                    **list_of(STRING),
                    "description": "DNSNames is a list of subject alternative names.",
                }
            }
        ),
        spec({"dnsNames": {**list_of(STRING), "description": "Requested DNS subject alternative names."}}),
        [],
        SAFE,
    ),
]
