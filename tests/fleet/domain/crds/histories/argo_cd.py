"""Changes in the manner of Argo CD's."""

from tests.fleet.domain.crds.histories.change import (
    BOOLEAN,
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
    spec,
    version,
)

_SOURCE = object_of({"repoURL": STRING, "path": STRING}, required=["repoURL"])
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_COUNT = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_COLUMN = {"name": "Sync Status", "type": "string", "jsonPath": ".status.sync.status"}

CHANGES = [
    CrdHistory(
        "2.6 permits several sources, so that one is not required",
        spec({"source": _SOURCE, "project": STRING}, required=["source", "project"]),
        spec({"source": _SOURCE, "sources": list_of(_SOURCE), "project": STRING}, required=["project"]),
        [],
        BREAKING,
    ),
    CrdHistory(
        "2.8 takes values of Helm as an object",
        spec({"helm": object_of({"values": STRING})}),
        spec({"helm": object_of({"values": STRING, "valuesObject": _OPEN})}),
        [],
        BREAKING,
    ),
    CrdHistory(
        "2.8 adds a policy of an ApplicationSet",
        spec({"syncPolicy": object_of({"preserveResourcesOnDeletion": BOOLEAN})}),
        spec(
            {
                "syncPolicy": object_of(
                    {
                        "preserveResourcesOnDeletion": BOOLEAN,
                        "applicationsSync": {
                            **STRING,
                            "enum": ["create-only", "create-update", "create-delete", "sync"],
                        },
                    }
                )
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "2.13 adds service accounts for destinations, with required fields",
        spec({"destinations": list_of(object_of({"server": STRING}))}),
        spec(
            {
                "destinations": list_of(object_of({"server": STRING})),
                "destinationServiceAccounts": list_of(
                    object_of(
                        {"server": STRING, "defaultServiceAccount": STRING},
                        required=["server", "defaultServiceAccount"],
                    )
                ),
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "replicas are a number or a text",
        spec({"replicas": list_of(object_of({"count": INTEGER}))}),
        spec({"replicas": list_of(object_of({"count": _COUNT}))}),
        ["warning type-widened v1:spec.replicas[*].count"],
        BREAKING,
    ),
    CrdHistory(
        "a generator writes the branches of int-or-string or leaves them out",
        spec({"count": _COUNT}),
        spec({"count": {"x-kubernetes-int-or-string": True}}),
        [],
        SAFE,
    ),
    CrdHistory(
        "a column shows the revision",
        crd(version("v1", additionalPrinterColumns=[_COLUMN])),
        crd(
            version(
                "v1",
                additionalPrinterColumns=[
                    _COLUMN,
                    {
                        "name": "Revision",
                        "type": "string",
                        "jsonPath": ".status.sync.revision",
                        "priority": 10,
                    },
                ],
            )
        ),
        [],
        SAFE,
    ),
    CrdHistory(
        "short names are added",
        crd(names={"shortNames": ["app"]}),
        crd(names={"shortNames": ["app", "apps"]}),
        [],
        SAFE,
    ),
    CrdHistory(
        "labels of resources lose their free keys",
        spec({"labels": map_of(STRING)}),
        spec({"labels": object_of({"team": STRING})}),
        ["breaking map-closed v1:spec.labels.*"],
        SAFE,
        one_way=True,
    ),
    CrdHistory(
        "the status of an operation gets a required field",
        crd(
            version(
                "v1",
                {
                    "type": "object",
                    "properties": {"status": object_of({"operationState": object_of({"phase": STRING})})},
                },
            )
        ),
        crd(
            version(
                "v1",
                {
                    "type": "object",
                    "properties": {
                        "status": object_of(
                            {"operationState": object_of({"phase": STRING}, required=["phase"])}
                        )
                    },
                },
            )
        ),
        ["warning required-added v1:status.operationState.phase"],
        SAFE,
    ),
    CrdHistory(
        "the limit of retries counts in 64 bits",
        spec({"limit": {**INTEGER, "format": "int32"}}),
        spec({"limit": {**INTEGER, "format": "int64"}}),
        [],
        BREAKING,
    ),
    CrdHistory(
        "time zones of windows have a default",
        spec({"syncWindows": list_of(object_of({"schedule": STRING, "timeZone": STRING}))}),
        spec(
            {
                "syncWindows": list_of(
                    object_of({"schedule": STRING, "timeZone": {**STRING, "default": "UTC"}})
                )
            }
        ),
        ["warning default-added v1:spec.syncWindows[*].timeZone"],
        WARNING,
    ),
]
