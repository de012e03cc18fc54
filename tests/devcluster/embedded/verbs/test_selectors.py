"""Label and field selectors, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.embedded.verbs import label_selectors
from kapsa.devcluster.embedded.verbs.label_selectors import SelectorError
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, PODS, WIDGET_DEFINITION, WIDGETS, Api

LABELS = {"app": "web", "tier": "front", "n": "5", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app=api", False),
        ("app!=api", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web, api)", True),
        ("app in (api)", False),
        ("app notin (api)", True),
        ("missing notin (a)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("n>4", True),
        ("n>5", False),
        ("n<6", True),
        ("app>1", False),
        ("empty=", True),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        ("app in (web,),tier", True),
        ("app in ()", False),
        ("empty in ()", True),
        (" app = web ", True),
    ],
)
def test_a_label_selector_selects(selector: str, selected: bool):
    matches = label_selectors.parse(selector)
    assert matches is not None
    assert matches(LABELS) is selected


def test_an_empty_selector_selects_all_objects():
    assert label_selectors.parse("") is None


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a=b,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
    ],
)
def test_an_invalid_selector_is_reported_with_its_position(selector: str, message: str):
    with pytest.raises(SelectorError) as error:
        label_selectors.parse(selector)
    assert str(error.value) == message


async def test_a_list_selects_by_labels():
    api = Api(Server())
    await api.configmap("a", {"app": "web"})
    await api.configmap("b", {"app": "api"})
    assert (await api.get(CONFIGMAPS, labelSelector="app=web")).names == ["a"]
    assert (await api.get(CONFIGMAPS, labelSelector="app notin (web)")).names == ["b"]


async def test_every_kind_selects_by_name_and_namespace():
    api = Api(Server())
    await api.configmap("a")
    await api.configmap("b")
    assert (await api.get(CONFIGMAPS, fieldSelector="metadata.name=b")).names == ["b"]
    assert (await api.get(CONFIGMAPS, fieldSelector="metadata.name!=b")).names == ["a"]
    assert (await api.get("/api/v1/configmaps", fieldSelector="metadata.namespace=default")).names == [
        "a",
        "b",
    ]


async def test_pods_select_by_their_own_fields():
    api = Api(Server())
    for name, node in (("a", "one"), ("b", "")):
        spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
        assert (await api.post(PODS, {"metadata": {"name": name}, "spec": spec})).status == 201
    assert (await api.get(PODS, fieldSelector="spec.nodeName=one")).names == ["a"]
    assert (await api.get(PODS, fieldSelector="spec.nodeName=")).names == ["b"]
    assert (await api.get(PODS, fieldSelector="status.phase=Pending,spec.nodeName!=one")).names == ["b"]


async def test_custom_resources_select_by_their_selectable_fields():
    api = Api(Server())
    await api.post(CRDS, WIDGET_DEFINITION)
    for name, color in (("a", "red"), ("b", "green")):
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": {"color": color},
        }
        assert (await api.post(WIDGETS, body)).status == 201
    assert (await api.get(WIDGETS, fieldSelector="spec.color=green")).names == ["b"]
    refused = await api.get(WIDGETS, fieldSelector="spec.size=1")
    assert refused.status == 400
    assert refused.message == "field label not supported: spec.size"


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (
            CONFIGMAPS,
            "foo=bar",
            '"foo" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (PODS, "foo=bar", "field label not supported: foo"),
        (CONFIGMAPS, "foo", "invalid selector: 'foo'; can't understand 'foo'"),
        (CONFIGMAPS, r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x"),
    ],
)
async def test_a_field_that_is_not_selectable_is_rejected(path: str, selector: str, message: str):
    answer = await Api(Server()).get(path, fieldSelector=selector)
    assert (answer.status, answer.message) == (400, message)
