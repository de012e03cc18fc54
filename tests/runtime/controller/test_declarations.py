"""Invalid declarations are rejected when the operator is created, with the remedy."""

from __future__ import annotations

import functools
import inspect
from datetime import timedelta
from typing import Any

import pytest

from kapsa.runtime import (
    Context,
    Controller,
    Converter,
    Key,
    MutatingWebhook,
    Operator,
    Requeue,
    Spec,
    ValidatingWebhook,
    Watch,
    generation_changed,
)
from tests.runtime.sample_app import App


class Good(Controller[App]):
    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        return None


class Silent(Controller[App]):
    """A valid controller."""


class Synchronous(Controller[App]):
    def reconcile(self, resource: App, ctx: Context[App]) -> None:  # type: ignore[override]
        return None


class Short(Controller[App]):
    async def reconcile(self, resource: App) -> None:  # type: ignore[override]
        return None


class SynchronousEnd(Good):
    def finalize(self, resource: App, ctx: Context[App]) -> None:  # type: ignore[override]
        return None


def declared(**attributes: Any) -> Good:
    controller = Good()
    for name, value in attributes.items():
        setattr(controller, name, value)
    return controller


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (Good, r"is not a controller: pass an instance, such as Good\(\)"),
        ("good", "'good' is not a controller"),
        (declared(owns="v1/Service"), r"Good.owns must be a tuple or list: write owns = \(...,\)"),
        (declared(predicates=generation_changed), "Good.predicates must be a tuple or list"),
        (declared(watches=Watch("v1/Secret", map=lambda secret: [])), "Good.watches must be a tuple or list"),
        (
            declared(watches=[Watch("v1/Secret", map=lambda: [Key("default", "web")])]),
            "must take the object, or the object and the",
        ),  # type: ignore[arg-type,misc]
        (
            declared(watches=[Watch("v1/Secret", map="web")]),
            "the map of v1/Secret must be a function, got 'web'",
        ),  # type: ignore[arg-type]
        (declared(owns=["Service"]), "Good.owns: 'Service' does not name a kind"),
        (declared(reads=[int]), "Good.reads: int does not name a kind"),
        (Silent(), "Silent does not define reconcile"),
        (Synchronous(), "Synchronous.reconcile must be asynchronous"),
        (Short(), "Short.reconcile must take the resource and the context"),
        (SynchronousEnd(), "SynchronousEnd.finalize must be asynchronous"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_declaration_that_cannot_work_is_rejected_at_once(controller: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Operator(controllers=[controller])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"own": ("v1/Service",)}, "Bad.own would be ignored: did you mean owns"),
        ({"watch": ()}, "did you mean watches"),
        ({"max_concurrent_reconcile": 5}, "did you mean max_concurrent_reconciles"),
        ({"finalise": Good.reconcile}, "Bad.finalise would be ignored: did you mean finalize"),
        ({"reconsile": Good.reconcile}, "did you mean reconcile"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_misspelt_attribute_is_not_ignored(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Bad", (Good,), attributes)


def test_attributes_of_the_users_own_are_allowed() -> None:
    attributes = {"image": "nginx", "owner": "me", "_own": (), "reconcile_volume": Good.reconcile}
    assert Operator(controllers=[type("Fine", (Good,), attributes)()]).controllers


def test_a_misspelt_attribute_of_a_webhook_is_not_ignored() -> None:
    with pytest.raises(TypeError, match=r"Bad\.operation would be ignored: did you mean operations"):
        type("Bad", (ValidatingWebhook,), {"operation": ("CREATE",), "resource": "v1/Pod"})
    with pytest.raises(
        TypeError, match=r"Bad\.reinvokation_policy would be ignored: did you mean reinvocation"
    ):
        type("Bad", (MutatingWebhook,), {"reinvokation_policy": "IfNeeded", "resource": "v1/Pod"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"short_names": ["app"]},
            r"App.short_names would be ignored; write it as an argument: class App\(..., ",
        ),
        ({"shortnames": ["app"]}, "App.shortnames would be ignored: did you mean short_names"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_kind_declares_in_its_body_is_not_ignored(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("App", (App,), body)


def test_a_field_without_a_type_is_not_ignored() -> None:
    with pytest.raises(
        TypeError, match=r"AppSpec\.replicas has no type, so it would not be a field; write replicas: int = "
    ):

        class AppSpec(Spec):
            replicas = 1


def test_a_decorated_reconcile_is_accepted() -> None:
    @functools.wraps(Good.reconcile)
    def traced(self: Good, resource: App, ctx: Context[App]) -> Any:
        return Good.reconcile(self, resource, ctx)

    controller = type("Decorated", (Good,), {"reconcile": traced})()
    assert Operator(controllers=[controller]).controllers


def test_a_requeue_takes_seconds() -> None:
    with pytest.raises(TypeError, match=r"must be a number of seconds, got datetime.timedelta\(seconds=3\)"):
        Requeue(after=timedelta(seconds=3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "method",
    [
        Controller.reconcile,
        Controller.finalize,
        ValidatingWebhook.validate,
        MutatingWebhook.mutate,
        Converter.to_hub,
        Converter.from_hub,
    ],
    ids=lambda method: method.__qualname__,
)
def test_a_type_checker_accepts_any_parameter_names_in_an_override(method: Any) -> None:
    parameters = inspect.signature(method).parameters.values()
    assert {each.kind for each in parameters} == {inspect.Parameter.POSITIONAL_ONLY}


def test_a_source_that_cannot_run_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"Good.sources: .* is not a source: pass an instance"):
        Operator(controllers=[declared(sources=[object()])])
