"""Watches: their start, their events and their end."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    PODS,
    WIDGETS,
    case,
    configmap,
    delete,
    merge,
    pod,
    post,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case, Watch

ONE = f"{CONFIGMAPS}/one"


def watch(
    name: str,
    query: str,
    *,
    before: tuple[Call, ...] = (),
    during: tuple[Call, ...] = (),
    events: int,
    path: str = CONFIGMAPS,
    **more: Any,
) -> Case:
    return case(
        name, *before, Watch(path=path, query=f"watch=true&{query}", during=during, events=events, **more)
    )


A = post(CONFIGMAPS, configmap("a", labels={"k": "v"}))
B = post(CONFIGMAPS, configmap("b"))

CASES = [
    watch(
        "a watch without a revision begins with the existing objects",
        "timeoutSeconds=3",
        before=(A, B),
        events=2,
    ),
    watch(
        "a watch from 0 begins with the existing objects",
        "resourceVersion=0&timeoutSeconds=3",
        before=(A,),
        events=1,
    ),
    watch(
        "a watch from a revision sends later changes",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(B,),
        events=1,
    ),
    watch(
        "create, change and delete are three events",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(post(CONFIGMAPS, configmap()), merge(ONE, {"data": {"a": "1"}}), delete(ONE)),
        events=3,
    ),
    watch(
        "a change that changes nothing sends no event",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(merge(f"{CONFIGMAPS}/a", {}), B),
        events=1,
    ),
    watch(
        "a dry run sends no event",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(post(CONFIGMAPS, configmap("x"), "dryRun=All"), B),
        events=1,
    ),
    watch(
        "a label that begins to match is ADDED",
        "resourceVersion={rv}&labelSelector=k=v&timeoutSeconds=3",
        before=(A, B),
        during=(merge(f"{CONFIGMAPS}/b", {"metadata": {"labels": {"k": "v"}}}),),
        events=1,
    ),
    watch(
        "a label that no longer matches is DELETED",
        "resourceVersion={rv}&labelSelector=k=v&timeoutSeconds=3",
        before=(A,),
        during=(merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"k": "w"}}}),),
        events=1,
    ),
    watch(
        "a change that stays outside the selection sends no event",
        "resourceVersion={rv}&labelSelector=k=v&timeoutSeconds=3",
        before=(A, B),
        during=(
            merge(f"{CONFIGMAPS}/b", {"data": {"a": "1"}}),
            merge(f"{CONFIGMAPS}/a", {"data": {"a": "1"}}),
        ),
        events=1,
    ),
    watch(
        "a change inside the selection is MODIFIED",
        "resourceVersion={rv}&labelSelector=k=v&timeoutSeconds=3",
        before=(A,),
        during=(merge(f"{CONFIGMAPS}/a", {"data": {"a": "1"}}),),
        events=1,
    ),
    watch(
        "a deletion inside the selection is DELETED",
        "resourceVersion={rv}&labelSelector=k=v&timeoutSeconds=3",
        before=(A,),
        during=(delete(f"{CONFIGMAPS}/a"),),
        events=1,
    ),
    watch(
        "one object is watched by its name",
        "resourceVersion={rv}&fieldSelector=metadata.name=b&timeoutSeconds=3",
        before=(A,),
        during=(B, post(CONFIGMAPS, configmap("c")), delete(f"{CONFIGMAPS}/b")),
        events=2,
    ),
    watch(
        "a path with a name watches that object",
        "resourceVersion={rv}&timeoutSeconds=3",
        path=f"{CONFIGMAPS}/a",
        before=(A,),
        during=(B, merge(f"{CONFIGMAPS}/a", {"data": {"a": "1"}})),
        events=1,
    ),
    watch(
        "the old watch path works",
        "resourceVersion={rv}&timeoutSeconds=3",
        path="/api/v1/watch/namespaces/{ns}/configmaps",
        before=(A,),
        during=(B,),
        events=1,
    ),
    watch(
        "a watch ends after timeoutSeconds", "resourceVersion={rv}&timeoutSeconds=1", before=(A,), events=1
    ),
    watch("a watch from a revision that is not a number is rejected", "resourceVersion=x", events=1),
    watch("a watch with a bad selector is rejected", "labelSelector=a+in+(", events=1),
    watch("a watch with an unknown field is rejected", "fieldSelector=data.a=1", events=1),
    watch("a watch with a limit ignores it", "limit=1&timeoutSeconds=3", before=(A, B), events=2),
    watch(
        "a watch rejects a continue token or ignores it",
        "continue=abc&timeoutSeconds=1",
        before=(A,),
        events=1,
    ),
    watch(
        "a watch rejects resourceVersionMatch without sendInitialEvents",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        events=1,
    ),
    watch("sendInitialEvents without resourceVersionMatch is rejected", "sendInitialEvents=true", events=1),
    watch(
        "sendInitialEvents with Exact is rejected",
        "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
        events=1,
    ),
    watch(
        "initial events end with the annotated bookmark",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
        before=(A, B),
        events=3,
    ),
    watch(
        "initial events of nothing are the bookmark alone",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
        events=1,
    ),
    watch(
        "initial events are selected by label",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=k&timeoutSeconds=5",
        before=(A, B),
        events=2,
    ),
    watch(
        "events go on after the bookmark",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
        before=(A,),
        during=(B,),
        events=3,
    ),
    watch(
        "without allowWatchBookmarks initial events have no bookmark",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=2",
        before=(A,),
        events=2,
    ),
    watch(
        "sendInitialEvents false begins with the revision",
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(B,),
        events=1,
    ),
    watch(
        "a finalizer turns a deletion into a change first",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(post(CONFIGMAPS, configmap("f", finalizers=["example.com/f"])),),
        during=(delete(f"{CONFIGMAPS}/f"), merge(f"{CONFIGMAPS}/f", {"metadata": {"finalizers": None}})),
        events=2,
    ),
    watch(
        "custom objects are watched",
        "resourceVersion={rv}&timeoutSeconds=3",
        path=WIDGETS,
        before=(post(WIDGETS, widget("a", {"size": 1})),),
        during=(
            merge(f"{WIDGETS}/a", {"spec": {"size": 2}}),
            merge(f"{WIDGETS}/a/status", {"status": {"ready": True}}),
            delete(f"{WIDGETS}/a"),
        ),
        events=3,
    ),
    watch(
        "custom objects are watched by a selectable field",
        "resourceVersion={rv}&fieldSelector=spec.color=green&timeoutSeconds=3",
        path=WIDGETS,
        before=(post(WIDGETS, widget("a", {"size": 1})),),
        during=(
            merge(f"{WIDGETS}/a", {"spec": {"color": "green"}}),
            merge(f"{WIDGETS}/a", {"spec": {"color": "red"}}),
        ),
        events=2,
    ),
    watch(
        "custom objects send initial events",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
        path=WIDGETS,
        before=(post(WIDGETS, widget("a", {"size": 1})),),
        events=2,
    ),
    watch(
        "a watch sends metadata only when asked",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(B,),
        events=1,
        accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ),
    watch(
        "a watch sends tables when asked",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A,),
        during=(B, post(CONFIGMAPS, configmap("c"))),
        events=2,
        accept="application/json;as=Table;g=meta.k8s.io;v=v1",
    ),
    watch(
        "a deletecollection is an event an object",
        "resourceVersion={rv}&timeoutSeconds=3",
        before=(A, B),
        during=(delete(CONFIGMAPS),),
        events=2,
    ),
    watch(
        "a pod's status write is an event",
        "resourceVersion={rv}&timeoutSeconds=3",
        path=PODS,
        before=(post(PODS, pod()),),
        during=(merge(f"{PODS}/one/status", {"status": {"phase": "Running"}}),),
        events=1,
    ),
]
