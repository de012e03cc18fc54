"""The pages on the fleet manager: the settings are those of the program, and the example accepts real events."""

from __future__ import annotations

import importlib.util
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kapsa.fleet.infrastructure.delivery.webhooks import webhook_signature
from kapsa.fleet.orchestrator.deployment_requests import DeploymentRequest
from kapsa.fleet.orchestrator.registry.operators import RegisterOperator, UpdateOperator
from kapsa.fleet.orchestrator.rollout.notices import DEPLOYMENT_NOTICES
from kapsa.fleet.settings import FleetSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "fleet"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_reference", ROOT / "tools" / "fleet_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_is_what_the_program_says(generator: ModuleType) -> None:
    written = (PAGES / "settings.md").read_text(encoding="utf-8")
    assert written == generator.render(), f"docs/fleet/settings.md is out of date: run `{generator.COMMAND}`"


def test_the_chart_accepts_exactly_the_settings_of_the_program(generator: ModuleType) -> None:
    assert generator.NAMES.read_text(encoding="utf-8") == generator.render_names(), (
        f"run `{generator.COMMAND}`"
    )


@pytest.mark.parametrize("page", sorted(each.name for each in PAGES.glob("*.md")))
def test_every_variable_on_a_page_is_a_setting(page: str) -> None:
    settings = {variable for variable, _, _ in FleetSettings.documentation()}
    mentioned = set(re.findall(r"\bKAPSA_(?:FLEET_[A-Z_]+|DATABASE_URL)\b", (PAGES / page).read_text()))
    assert mentioned <= settings


def test_the_receiver_of_the_example_accepts_an_event_once_and_no_forgery() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / "running.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    now, body, secret = int(time.time()), b'{"type":"approval.requested"}', b"secret"

    def headers(event: str, sent: int, key: bytes = secret) -> dict[str, str]:
        signature = webhook_signature(key, event, sent, body)
        return {"webhook-id": event, "webhook-timestamp": str(sent), "webhook-signature": signature}

    seen: set[str] = set()
    is_genuine = namespace["is_genuine"]
    assert is_genuine(headers("a", now), body, secret, seen)
    assert not is_genuine(headers("a", now), body, secret, seen)
    assert not is_genuine(headers("b", now - 301), body, secret, seen)
    assert not is_genuine(headers("c", now, b"another"), body, secret, seen)
    assert not is_genuine(headers("d", now), body + b" ", secret, seen)
    assert is_genuine(headers("d", now), body, secret, seen), "a forgery must not use up the id"
    both = f"{webhook_signature(b'new', 'e', now, body)} {webhook_signature(secret, 'e', now, body)}"
    assert is_genuine({**headers("e", now), "webhook-signature": both}, body, secret, seen)


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


def test_the_api_accepts_the_request_of_the_page_on_rollouts() -> None:
    (body,) = blocks("rollouts.md", "json")
    request = msgspec.json.decode(body, type=DeploymentRequest)
    assert request.canary_config is not None
    assert request.canary_config.percentages == (10, 30, 100)


def test_the_api_accepts_the_values_of_the_page_on_registration() -> None:
    (body,) = blocks("registration.md", "json")
    change = msgspec.json.decode(body, type=UpdateOperator)
    assert (change.values, change.cluster_values) == ({"replicas": 2}, {"prod-eu": {"replicas": 5}})
    own = {"name": "a", "namespace": "a", "source": {"type": "http", "repository": "https://a", "chart": "a"}}
    msgspec.json.decode(msgspec.json.encode({**own, **msgspec.json.decode(body)}), type=RegisterOperator)


@pytest.mark.parametrize("page", sorted(each.name for each in PAGES.glob("*.md")))
def test_no_page_shows_json_that_no_test_decodes(page: str) -> None:
    checked = {"rollouts.md": 1, "registration.md": 1, "monitoring.md": 1}
    assert len(blocks(page, "json")) == checked.get(page, 0)


def test_the_page_lists_every_event_of_a_deployment() -> None:
    page = (PAGES / "running.md").read_text()
    assert [event for event in DEPLOYMENT_NOTICES.values() if f"`{event}`" not in page] == []
