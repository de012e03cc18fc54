"""Generated cases: short histories of one object under several managers.

A program is a list of writes (create, replace, merge, JSON and strategic patch, apply with and without force,
status writes, deletes) to one or two objects of one kind. The alphabets are small, so that managers conflict,
fields come and go, and the same state is reached in many ways. Each response is compared, and a list at the
end.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    WIDGETS,
    apply,
    configmap,
    delete,
    deployment,
    get,
    json_patch,
    merge,
    post,
    put,
    strategic,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

NAMES = st.sampled_from(["one", "two"])
MANAGERS = st.sampled_from(["alpha", "beta"])
VALUES = st.sampled_from(["1", "2"])
DATA = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
LABELS = st.dictionaries(st.sampled_from(["k", "l"]), VALUES, max_size=2)
PARTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("xyz")}, optional={"count": st.integers(0, 2), "note": VALUES}
    ),
    max_size=3,
    unique_by=lambda part: part["name"],
)
SPECS = st.fixed_dictionaries(
    {"size": st.integers(0, 3)},
    optional={
        "color": st.sampled_from(["red", "green", "blue"]),
        "labels": DATA,
        "tags": st.lists(st.sampled_from("pqr"), max_size=3, unique=True),
        "list": st.lists(VALUES, min_size=1, max_size=2),
        "parts": PARTS,
        "atom": st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2),
        "free": st.dictionaries(st.sampled_from("fg"), st.one_of(VALUES, DATA), max_size=2),
        "maybe": st.one_of(st.none(), VALUES),
        "unknown": VALUES,
    },
)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "ready": st.booleans(),
        "replicas": st.integers(0, 2),
        "conditions": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from("AB"), "status": VALUES}),
            max_size=2,
            unique_by=lambda condition: condition["type"],
        ),
    },
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("mn"), "image": st.sampled_from(["i:1", "i:2"])},
        optional={
            "env": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from("EF"), "value": VALUES}),
                max_size=2,
                unique_by=lambda variable: variable["name"],
            ),
            "args": st.lists(VALUES, max_size=2),
            "ports": st.lists(
                st.fixed_dictionaries({"containerPort": st.sampled_from([80, 81])}),
                max_size=2,
                unique_by=lambda port: port["containerPort"],
            ),
        },
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda container: container["name"],
)


def by(manager: str) -> str:
    return f"fieldManager={manager}"


@st.composite
def configmap_write(draw: st.DrawFn) -> Call:
    name, manager, data, labels = draw(NAMES), draw(MANAGERS), draw(DATA), draw(LABELS)
    path, body = f"{CONFIGMAPS}/{name}", configmap(name, data=data, labels=labels)
    return draw(
        st.sampled_from(
            [
                post(CONFIGMAPS, body, by(manager)),
                put(path, body, by(manager)),
                merge(path, {"data": data, "metadata": {"labels": {"k": None, **labels}}}, by(manager)),
                strategic(path, {"data": {"a": None, **data}}, by(manager)),
                json_patch(path, {"op": "add", "path": "/data", "value": data}, query=by(manager)),
                json_patch(path, {"op": "remove", "path": "/data/a"}, query=by(manager)),
                apply(path, body, manager),
                apply(path, body, manager, force=True),
                apply(path, body, manager, query="dryRun=All"),
                delete(path),
                get(path),
            ]
        )
    )


@st.composite
def widget_write(draw: st.DrawFn) -> Call:
    name, manager, spec, status = draw(NAMES), draw(MANAGERS), draw(SPECS), draw(STATUSES)
    path, body = f"{WIDGETS}/{name}", widget(name, spec)
    return draw(
        st.sampled_from(
            [
                post(WIDGETS, body, by(manager)),
                put(path, body, by(manager)),
                merge(path, {"spec": spec}, by(manager)),
                json_patch(path, {"op": "replace", "path": "/spec", "value": spec}, query=by(manager)),
                apply(path, body, manager),
                apply(path, body, manager, force=True),
                merge(f"{path}/status", {"status": status}, by(manager)),
                apply(f"{path}/status", widget(name, status=status), manager),
                apply(f"{path}/status", widget(name, status=status), manager, force=True),
                delete(path),
                get(path),
            ]
        )
    )


@st.composite
def deployment_write(draw: st.DrawFn) -> Call:
    name, manager, containers = draw(NAMES), draw(MANAGERS), draw(CONTAINERS)
    path, body = f"{DEPLOYMENTS}/{name}", deployment(name, containers, replicas=draw(st.integers(0, 2)))
    change: dict[str, Any] = {"spec": {"template": {"spec": {"containers": containers}}}}
    return draw(
        st.sampled_from(
            [
                post(DEPLOYMENTS, body, by(manager)),
                put(path, body, by(manager)),
                strategic(path, change, by(manager)),
                merge(path, change, by(manager)),
                apply(path, body, manager),
                apply(path, body, manager, force=True),
                get(path),
            ]
        )
    )


WRITES = {
    "configmaps": (configmap_write(), CONFIGMAPS),
    "widgets": (widget_write(), WIDGETS),
    "deployments": (deployment_write(), DEPLOYMENTS),
}


@st.composite
def program(draw: st.DrawFn, kind: str) -> Case:
    """Draw three to eight writes, followed by a list."""
    write, collection = WRITES[kind]
    steps = draw(st.lists(write, min_size=3, max_size=8))
    return Case(name=f"generated {kind}", steps=[*steps, get(collection)])
