"""Changes in the manner of CloudNativePG's."""

from tests.fleet.domain.crds.histories.change import (
    BOOLEAN,
    BREAKING,
    INTEGER,
    SAFE,
    STRING,
    WARNING,
    CrdHistory,
    list_of,
    object_of,
    rule,
    spec,
)

_METHODS = ["barmanObjectStore", "volumeSnapshot"]
_IMAGES = list_of(
    object_of({"image": STRING, "major": INTEGER}, required=["image", "major"]), minItems=1, maxItems=8
)

CHANGES = [
    CrdHistory(
        "1.21 turns superuser access off by default",
        spec({"enableSuperuserAccess": {**BOOLEAN, "default": True}}),
        spec({"enableSuperuserAccess": {**BOOLEAN, "default": False}}),
        ["warning default-changed v1:spec.enableSuperuserAccess"],
        WARNING,
    ),
    CrdHistory(
        "1.21 waits longer for a stop by default",
        spec({"stopDelay": {**INTEGER, "format": "int32", "default": 30}}),
        spec({"stopDelay": {**INTEGER, "format": "int32", "default": 1800}}),
        ["warning default-changed v1:spec.stopDelay"],
        WARNING,
    ),
    CrdHistory(
        "a plugin may make backups",
        spec({"method": {**STRING, "enum": _METHODS, "default": "barmanObjectStore"}}),
        spec({"method": {**STRING, "enum": [*_METHODS, "plugin"], "default": "barmanObjectStore"}}),
        ["warning enum-value-added v1:spec.method"],
        BREAKING,
    ),
    CrdHistory(
        "the catalog of an image must be of our group",
        spec({"imageCatalogRef": object_of({"kind": STRING, "apiGroup": STRING})}),
        spec(
            {
                "imageCatalogRef": rule(
                    object_of({"kind": STRING, "apiGroup": STRING}),
                    "self.kind == 'ImageCatalog' || self.kind == 'ClusterImageCatalog'",
                    "self.apiGroup == 'postgresql.cnpg.io'",
                )
            }
        ),
        [
            "breaking cel-rule-added v1:spec.imageCatalogRef",
            "breaking cel-rule-added v1:spec.imageCatalogRef",
        ],
        SAFE,
    ),
    CrdHistory(
        "major versions of a catalog are unique",
        spec({"images": _IMAGES}),
        spec({"images": rule(_IMAGES, "self.all(e, self.filter(f, f.major == e.major).size() == 1)")}),
        ["breaking cel-rule-added v1:spec.images"],
        SAFE,
    ),
    CrdHistory(
        "the name of a database cannot be changed",
        spec({"name": STRING}, required=["name"]),
        spec({"name": rule(STRING, "self == oldSelf")}, required=["name"]),
        ["warning cel-rule-added v1:spec.name"],
        SAFE,
    ),
    CrdHistory(
        "reserved names are refused",
        spec({"name": rule(STRING, "self == oldSelf")}),
        spec({"name": rule(STRING, "self == oldSelf", "self != 'postgres'")}),
        ["breaking cel-rule-added v1:spec.name"],
        SAFE,
    ),
    CrdHistory(
        "1.26 manages extensions and schemas of a database",
        spec({"name": STRING}),
        spec(
            {
                "name": STRING,
                "extensions": list_of(object_of({"name": STRING}, required=["name"])),
                "schemas": list_of(STRING),
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "the number of instances is bounded, with a default",
        spec({"instances": INTEGER}, required=["instances"]),
        spec({"instances": {**INTEGER, "default": 1, "minimum": 1}}, required=["instances"]),
        ["breaking bound-tightened v1:spec.instances", "warning default-added v1:spec.instances"],
        BREAKING,
    ),
    CrdHistory(
        "the retention of backups must have a unit",
        spec({"retentionPolicy": STRING}),
        spec({"retentionPolicy": {**STRING, "pattern": "^[1-9][0-9]*[dwm]$"}}),
        ["breaking pattern-changed v1:spec.retentionPolicy"],
        SAFE,
    ),
]
