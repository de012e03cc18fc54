"""Content negotiation: JSON, YAML, tables, metadata only; and discovery."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    GADGETS,
    LEASES,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    case,
    configmap,
    deployment,
    get,
    pod,
    post,
    secret,
    service,
    widget,
)

ONE = f"{CONFIGMAPS}/one"
START = post(CONFIGMAPS, configmap(data={"a": "1"}))
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
YAML = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: '1'\n"

CASES = [
    case("yaml is read", post(CONFIGMAPS, YAML, content_type="application/yaml")),
    case("yaml is written", START, get(ONE, accept="application/yaml")),
    case(
        "yaml with two documents is rejected or cut",
        post(CONFIGMAPS, YAML + "---\n" + YAML, content_type="application/yaml"),
    ),
    case("broken yaml is rejected", post(CONFIGMAPS, "a: [", content_type="application/yaml")),
    case(
        "yaml with a duplicate key warns",
        post(CONFIGMAPS, YAML + "  a: '2'\n", content_type="application/yaml", query="fieldValidation=Warn"),
    ),
    case(
        "yaml with a duplicate key under Strict is rejected",
        post(
            CONFIGMAPS, YAML + "  a: '2'\n", content_type="application/yaml", query="fieldValidation=Strict"
        ),
    ),
    case("an unknown content type is 415", post(CONFIGMAPS, "x", content_type="text/csv")),
    case("json without a content type is read", post(CONFIGMAPS, configmap(), content_type="")),
    case(
        "json with a charset is read",
        post(CONFIGMAPS, configmap(), content_type="application/json; charset=utf-8"),
    ),
    case("an unknown accept is 406", START, get(ONE, accept="text/csv")),
    case("any accept is json", START, get(ONE, accept="*/*")),
    case("application any accept is json", START, get(ONE, accept="application/*")),
    case("the first known accept wins", START, get(ONE, accept="text/csv,application/yaml,application/json")),
    case("q values are read", START, get(ONE, accept="application/yaml;q=0.1,application/json;q=0.9")),
    case("pretty is pretty", START, get(ONE, "pretty=true")),
    case("a list becomes a table", START, get(CONFIGMAPS, accept=TABLE)),
    case("an object becomes a table", START, get(ONE, accept=TABLE)),
    case("a table falls back to json", START, get(CONFIGMAPS, accept=TABLE + ",application/json")),
    case("a table can carry whole objects", START, get(CONFIGMAPS, "includeObject=Object", accept=TABLE)),
    case("a table can carry nothing", START, get(CONFIGMAPS, "includeObject=None", accept=TABLE)),
    case(
        "a table with an unknown includeObject is rejected",
        START,
        get(CONFIGMAPS, "includeObject=Some", accept=TABLE),
    ),
    case(
        "an unknown table version is 406",
        START,
        get(CONFIGMAPS, accept="application/json;as=Table;v=v9;g=meta.k8s.io"),
    ),
    case(
        "custom objects become a table with their columns",
        post(WIDGETS, widget(spec={"size": 1})),
        get(WIDGETS, accept=TABLE),
    ),
    case("gadgets become a table with default columns", get(GADGETS, accept=TABLE)),
    case("pods become a table with their columns", post(PODS, pod()), get(PODS, accept=TABLE)),
    case(
        "deployments become a table with their columns",
        post(DEPLOYMENTS, deployment()),
        get(DEPLOYMENTS, accept=TABLE),
    ),
    case(
        "services become a table with their columns",
        post(SERVICES, service(clusterIP="None", selector={"a": "b"})),
        get(SERVICES, accept=TABLE),
    ),
    case(
        "secrets become a table with their columns",
        post(SECRETS, secret(data={"a": "MQ=="})),
        get(SECRETS, accept=TABLE),
    ),
    case(
        "leases become a table with their columns",
        post(LEASES, {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}),
        get(LEASES, accept=TABLE),
    ),
    case("the namespace becomes a table with its columns", get("/api/v1/namespaces/{ns}", accept=TABLE)),
    case(
        "serviceaccounts become a table",
        post("/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "robot"}}),
        get("/api/v1/namespaces/{ns}/serviceaccounts", "fieldSelector=metadata.name=robot", accept=TABLE),
    ),
    case(
        "roles become a table",
        post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
            {"metadata": {"name": "one"}, "rules": []},
        ),
        get("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", accept=TABLE),
    ),
    case("an error under a table accept is a Status", get(f"{CONFIGMAPS}/none", accept=TABLE)),
    case("an object becomes its metadata", START, get(ONE, accept=PARTIAL)),
    case("a list becomes its metadata", START, get(CONFIGMAPS, accept=PARTIAL_LIST)),
    case(
        "a custom object becomes its metadata",
        post(WIDGETS, widget(spec={"size": 1})),
        get(f"{WIDGETS}/one", accept=PARTIAL),
    ),
    case("a created object can come back as metadata", post(CONFIGMAPS, configmap(), accept=PARTIAL)),
    case("a list as single metadata is 406", START, get(CONFIGMAPS, accept=PARTIAL)),
    case("an object as metadata list is 406", START, get(ONE, accept=PARTIAL_LIST)),
    case("the core group's resources are listed", get("/api", headers={})),
    case("the groups' versions are listed", get("/apis/apps")),
    case("the conformance group is discovered", get("/apis/conformance.kapsa.dev")),
    case("the conformance group's resources are discovered", get("/apis/conformance.kapsa.dev/v1")),
    case("coordination's resources are discovered", get("/apis/coordination.k8s.io/v1")),
    case("apps' resources are discovered", get("/apis/apps/v1")),
    case("batch's resources are discovered", get("/apis/batch/v1")),
    case("networking's resources are discovered", get("/apis/networking.k8s.io/v1")),
    case("rbac's resources are discovered", get("/apis/rbac.authorization.k8s.io/v1")),
    case("the core's resources are discovered", get("/api/v1")),
    case("an unknown group is not discovered", get("/apis/none.example.com")),
    case("an unknown version is not discovered", get("/apis/apps/v9")),
    case("health is ok", get("/healthz")),
    case("liveness is ok", get("/livez")),
    case("readiness is ok", get("/readyz")),
    case(
        "a review of one's own access is answered",
        post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}},
        ),
    ),
    case(
        "a review of one's own access needs attributes",
        post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}}),
    ),
    case("a review cannot be read", get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")),
]
