"""Lists: selectors, pages, revisions."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    WIDGETS,
    case,
    configmap,
    delete,
    get,
    merge,
    pod,
    post,
    secret,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

THREE = (
    post(CONFIGMAPS, configmap("a", labels={"app": "x", "tier": "front"})),
    post(CONFIGMAPS, configmap("b", labels={"app": "y"})),
    post(CONFIGMAPS, configmap("c")),
)
PODS_TWO = (post(PODS, pod("a")), post(PODS, pod("b", nodeName="elsewhere")))


def listed(name: str, query: str) -> Case:
    return case(name, *THREE, get(CONFIGMAPS, query))


CASES = [
    case("an empty list has items", get(CONFIGMAPS)),
    listed("a list is in the order of names", ""),
    listed("equality selects", "labelSelector=app=x"),
    listed("double equality selects", "labelSelector=app==x"),
    listed("inequality selects those without the label too", "labelSelector=app!=x"),
    listed("in selects", "labelSelector=app+in+(x,y)"),
    listed("notin selects those without the label too", "labelSelector=app+notin+(x)"),
    listed("existence selects", "labelSelector=tier"),
    listed("absence selects", "labelSelector=!tier"),
    listed("two requirements are both held", "labelSelector=app,!tier"),
    listed("an empty value is a value", "labelSelector=app="),
    listed("a selector in encoded form is read", "labelSelector=app%20in%20%28x%29"),
    *(
        listed(f"the label selector {shown} is rejected", f"labelSelector={raw}")
        for shown, raw in (
            ("with an open bracket", "app+in+(x"),
            ("with a bad key", "-a=b"),
            ("with a bad value", "a=b!"),
            ("with two operators", "a==b=c"),
            ("with an empty in", "a+in+()"),
            ("made of a comma", ","),
            ("gt without number", "a>b"),
            ("of a lone bang", "!"),
            ("with a slash", "a/b/c=d"),
        )
    ),
    listed("a number comparison selects", "labelSelector=app>1"),
    listed("metadata.name selects", "fieldSelector=metadata.name=a"),
    listed("metadata.name inequality selects", "fieldSelector=metadata.name!=a"),
    listed("metadata.namespace selects", "fieldSelector=metadata.namespace={ns}"),
    listed("two field requirements are both held", "fieldSelector=metadata.name=a,metadata.namespace=other"),
    listed("an unknown field label is rejected", "fieldSelector=data.a=1"),
    listed("a malformed field selector is rejected", "fieldSelector=metadata.name"),
    listed("label and field selectors are both held", "fieldSelector=metadata.name=a&labelSelector=app=y"),
    case(
        "a field selector by path of one object reads it",
        *THREE,
        get(CONFIGMAPS, "fieldSelector=metadata.name%3Da"),
    ),
    case("pods are selected by node", *PODS_TWO, get(PODS, "fieldSelector=spec.nodeName=elsewhere")),
    case("pods are selected by phase", *PODS_TWO, get(PODS, "fieldSelector=status.phase=Pending")),
    case(
        "pods are selected by restart policy",
        *PODS_TWO,
        get(PODS, "fieldSelector=spec.restartPolicy!=Always"),
    ),
    case("pods reject an unknown field", *PODS_TWO, get(PODS, "fieldSelector=spec.hostname=a")),
    case("secrets are selected by type", post(SECRETS, secret()), get(SECRETS, "fieldSelector=type=Opaque")),
    case(
        "widgets are selected by a selectable field",
        post(WIDGETS, widget(spec={"size": 1, "color": "green"})),
        get(WIDGETS, "fieldSelector=spec.color=green"),
        get(WIDGETS, "fieldSelector=spec.color=red"),
    ),
    case("widgets reject a field that is not selectable", get(WIDGETS, "fieldSelector=spec.size=1")),
    listed("a limit pages and counts the rest", "limit=2"),
    listed("a limit as large as the list does not page", "limit=3"),
    listed("a limit of zero does not limit", "limit=0"),
    listed("a negative limit is rejected or ignored", "limit=-1"),
    listed("a limit that is not a number is rejected", "limit=x"),
    case(
        "continue brings the next page",
        *THREE,
        get(CONFIGMAPS, "limit=1"),
        get(CONFIGMAPS, "limit=1&continue={continue}"),
        get(CONFIGMAPS, "limit=1&continue={continue}"),
    ),
    case(
        "continue keeps the first page's snapshot",
        *THREE,
        get(CONFIGMAPS, "limit=1"),
        post(CONFIGMAPS, configmap("bb")),
        get(CONFIGMAPS, "continue={continue}"),
    ),
    case(
        "a page with a selector does not count the rest", *THREE, get(CONFIGMAPS, "limit=1&labelSelector=app")
    ),
    listed("a continue token that is garbage is rejected", "limit=1&continue=garbage"),
    listed(
        "a continue token that is not the store's is rejected",
        "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
    ),
    case(
        "continue with a resourceVersion is rejected",
        *THREE,
        get(CONFIGMAPS, "limit=1"),
        get(CONFIGMAPS, "limit=1&continue={continue}&resourceVersion=5"),
    ),
    listed("resourceVersion 0 lists", "resourceVersion=0"),
    listed("resourceVersion that is not a number is rejected", "resourceVersion=abc"),
    listed("a negative resourceVersion is rejected", "resourceVersion=-1"),
    listed("resourceVersionMatch without resourceVersion is rejected", "resourceVersionMatch=Exact"),
    listed("an unknown resourceVersionMatch is rejected", "resourceVersion=1&resourceVersionMatch=Never"),
    listed("Exact at 0 is rejected", "resourceVersion=0&resourceVersionMatch=Exact"),
    case(
        "Exact lists the past",
        *THREE[:2],
        post(CONFIGMAPS, configmap("d")),
        delete(f"{CONFIGMAPS}/a"),
        get(CONFIGMAPS, "resourceVersion={rv}&resourceVersionMatch=Exact"),
    ),
    case(
        "NotOlderThan lists the present",
        *THREE,
        get(CONFIGMAPS, "resourceVersion={rv}&resourceVersionMatch=NotOlderThan"),
    ),
    listed(
        "a future revision times out",
        "resourceVersion=99999999999&timeoutSeconds=1&resourceVersionMatch=NotOlderThan",
    ),
    listed("an exact future revision is rejected", "resourceVersion=99999999999&resourceVersionMatch=Exact"),
    case("a get at revision 0 reads", *THREE, get(f"{CONFIGMAPS}/a", "resourceVersion=0")),
    case(
        "a get at a revision that is not a number is rejected",
        *THREE,
        get(f"{CONFIGMAPS}/a", "resourceVersion=x"),
    ),
    case(
        "a list over all namespaces selects by namespace",
        *THREE,
        get("/api/v1/configmaps", "fieldSelector=metadata.namespace={ns}"),
    ),
    case("a list of a missing namespace is empty", get("/api/v1/namespaces/nope/configmaps")),
    case(
        "a list of custom objects has their list kind", post(WIDGETS, widget(spec={"size": 1})), get(WIDGETS)
    ),
    case(
        "custom objects page",
        *(post(WIDGETS, widget(name, {"size": 1})) for name in "abc"),
        get(WIDGETS, "limit=2"),
        get(WIDGETS, "limit=2&continue={continue}"),
    ),
    case(
        "custom objects are selected by label",
        post(WIDGETS, widget("a", {"size": 1})),
        merge(f"{WIDGETS}/a", {"metadata": {"labels": {"k": "v"}}}),
        get(WIDGETS, "labelSelector=k=v"),
        get(WIDGETS, "labelSelector=k!=v"),
    ),
    case("sendInitialEvents without watch is rejected", get(CONFIGMAPS, "sendInitialEvents=true")),
    case("a collection rejects HEAD or answers it as GET", Call(method="HEAD", path=CONFIGMAPS)),
    case("a collection answers an OPTIONS request", Call(method="OPTIONS", path=CONFIGMAPS)),
]
