"""The declaration of webhooks."""

from pathlib import Path
from typing import Any

import pytest

from kapsa.runtime import (
    ValidatingWebhook,
    WebhookRights,
    Webhooks,
)
from tests.runtime.webhooks.webhook_server import (
    App,
    AppDefaulter,
    AppValidator,
    OldAppConverter,
    webhooks,
)


def test_a_webhook_needs_a_kind_and_a_valid_timeout() -> None:
    class Nameless(ValidatingWebhook[Any]):
        pass

    class Slow(ValidatingWebhook[App]):
        timeout_seconds = 60

    with pytest.raises(TypeError, match="Nameless has no kind"):
        Nameless()
    with pytest.raises(ValueError, match="between 1 and 30, got 60"):
        Slow()


def test_two_webhooks_at_one_path_are_rejected() -> None:
    class Other(ValidatingWebhook[App]):
        pass

    with pytest.raises(
        ValueError, match="AppValidator and Other are both served at /validate-example-com-v1-app"
    ):
        webhooks(AppValidator(), Other())
    with pytest.raises(ValueError, match="AppValidator and AppValidator are both served at"):
        webhooks(AppValidator(), AppValidator())


def test_webhooks_need_a_service_or_a_url_and_not_both() -> None:
    with pytest.raises(ValueError, match="either a service or a url"):
        Webhooks(AppValidator())
    with pytest.raises(ValueError, match="either a service or a url"):
        Webhooks(AppValidator(), service="a", url="https://b")


def test_the_rights_are_those_that_the_declaration_needs(tmp_path: Path) -> None:
    every = webhooks(AppValidator(), AppDefaulter(), converters=[OldAppConverter()])
    assert every.rights("shop") == WebhookRights(
        validating="shop",
        mutating="shop",
        conversion=("apps.example.com",),
        secret="shop-webhook-certificates",
    )
    assert webhooks(AppValidator(), cert_dir=tmp_path).rights("shop") == WebhookRights(validating="shop")
    assert Webhooks().rights("shop") == WebhookRights(former_validating="shop", former_mutating="shop")


def test_a_form_that_has_webhooks_is_not_a_former_one() -> None:
    assert Webhooks(AppDefaulter(), service="a", former=["validating"]).former == ("validating",)
    with pytest.raises(ValueError, match="there are validating webhooks: remove 'validating' from former"):
        Webhooks(AppValidator(), service="a", former=["validating"])
