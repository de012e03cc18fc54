"""Changes in the manner of external-secrets'."""

from tests.fleet.domain.crds.histories.change import (
    BREAKING,
    SAFE,
    STRING,
    WARNING,
    CrdHistory,
    crd,
    list_of,
    object_of,
    spec,
    version,
)

_WEBHOOK = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "w", "namespace": "es"}}}}
_NAME = {**STRING, "minLength": 1, "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_STORE = object_of({"name": STRING})
_REF = {"key": STRING}
_PROVIDERS = {"aws": object_of({"region": STRING}), "vault": object_of({"server": STRING})}

CHANGES = [
    CrdHistory(
        "0.5 stores v1beta1 and keeps v1alpha1",
        crd(version("v1alpha1")),
        crd(version("v1alpha1", storage=False), version("v1beta1")),
        ["warning storage-moved spec.versions[v1beta1].storage"],
        BREAKING,
    ),
    CrdHistory(
        "0.5 adds a strategy of conversion with a default",
        spec({"remoteRef": object_of(_REF, required=["key"])}),
        spec(
            {
                "remoteRef": object_of(
                    {**_REF, "conversionStrategy": {**STRING, "default": "Default"}}, required=["key"]
                )
            }
        ),
        ["warning default-added v1:spec.remoteRef.conversionStrategy"],
        BREAKING,
    ),
    CrdHistory(
        "0.8 adds a policy of metadata to each entry",
        spec({"data": list_of(object_of(_REF))}),
        spec(
            {
                "data": list_of(
                    object_of(
                        {**_REF, "metadataPolicy": {**STRING, "enum": ["None", "Fetch"], "default": "None"}}
                    )
                )
            }
        ),
        ["warning default-added v1:spec.data[*].metadataPolicy"],
        BREAKING,
    ),
    CrdHistory(
        "the store is optional once every entry may name its own",
        spec({"secretStoreRef": _STORE}, required=["secretStoreRef"]),
        spec({"secretStoreRef": _STORE}),
        [],
        BREAKING,
    ),
    CrdHistory(
        "names are checked as Kubernetes checks them",
        spec({"secretRef": object_of({"name": STRING})}),
        spec({"secretRef": object_of({"name": _NAME})}),
        [
            "breaking bound-tightened v1:spec.secretRef.name",
            "breaking bound-tightened v1:spec.secretRef.name",
            "breaking pattern-changed v1:spec.secretRef.name",
        ],
        SAFE,
    ),
    CrdHistory(
        "exactly one provider may be set",
        spec({"provider": object_of(_PROVIDERS)}),
        spec({"provider": object_of(_PROVIDERS, minProperties=1, maxProperties=1)}),
        ["breaking bound-tightened v1:spec.provider", "breaking bound-tightened v1:spec.provider"],
        SAFE,
    ),
    CrdHistory(
        "another provider is added",
        spec({"provider": object_of(_PROVIDERS, maxProperties=1)}),
        spec(
            {
                "provider": object_of(
                    {**_PROVIDERS, "doppler": object_of({"project": STRING})}, maxProperties=1
                )
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "a list of selectors is added next to the deprecated one",
        spec({"namespaceSelector": object_of({"matchLabels": STRING})}),
        spec(
            {
                "namespaceSelector": object_of({"matchLabels": STRING}),
                "namespaceSelectors": list_of(object_of({"matchLabels": STRING})),
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "the default of the whole target is filled in",
        spec({"target": object_of({"creationPolicy": {**STRING, "default": "Owner"}})}),
        spec(
            {
                "target": {
                    **object_of({"creationPolicy": {**STRING, "default": "Owner"}}),
                    "default": {"creationPolicy": "Owner"},
                }
            }
        ),
        ["warning default-added v1:spec.target"],
        WARNING,
    ),
    CrdHistory(
        "0.16 stores v1",
        crd(version("v1beta1"), conversion=_WEBHOOK),
        crd(version("v1beta1", storage=False), version("v1"), conversion=_WEBHOOK),
        ["warning storage-moved spec.versions[v1].storage"],
        BREAKING,
        one_way=True,
    ),
    CrdHistory(
        "0.17 stops serving v1beta1",
        crd(version("v1beta1", storage=False), version("v1")),
        crd(version("v1beta1", storage=False, served=False, deprecated=True), version("v1")),
        [
            "breaking version-unserved spec.versions[v1beta1].served",
            "warning version-deprecated spec.versions[v1beta1].deprecated",
        ],
        SAFE,
    ),
]
