"""Settings: the documented variables and defaults, and one line for an invalid value."""

import re
from pathlib import Path

import pytest

from kapsa.environments.settings import Settings, SettingsError


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = Settings.from_environment({})
    assert (settings.log_level, settings.log_format) == ("INFO", "json")
    assert settings.default_poll_interval == 300
    assert settings.reconciliation_timeout == 600
    assert (settings.metrics_port, settings.metrics_enabled) == (8080, True)
    assert settings.namespace == "kapsa-system"
    assert settings.kpack_builder_image == "paketobuildpacks/builder:base"
    assert settings.kpack_service_account == "kapsa-build"
    assert settings.preview_domain == "preview.catalyst.dev"
    assert settings.preview_environment_domain == "preview.orimatest.com"
    assert settings.ingress_class == "nginx"


def test_every_variable_is_read() -> None:
    settings = Settings.from_environment(
        {
            "KAPSA_LOG_LEVEL": "debug",
            "KAPSA_LOG_FORMAT": "console",
            "KAPSA_DEFAULT_POLL_INTERVAL": "60",
            "KAPSA_METRICS_PORT": " 9090 ",
            "KAPSA_METRICS_ENABLED": "False",
            "KAPSA_GIT_PROTOCOLS": "https, file",
            "KAPSA_API_SERVER_CIDRS": "10.0.0.1/32",
            "KAPSA_CACHE_DIRECTORY": "/somewhere",
            "KAPSA_NAMESPACE": "",
            "OTHER": "x",
        }
    )
    assert settings.log_level == "DEBUG"
    assert settings.log_format == "console"
    assert settings.default_poll_interval == 60
    assert settings.metrics_port == 9090
    assert settings.metrics_enabled is False
    assert settings.git_protocols == ("https", "file")
    assert settings.api_server_cidrs == ("10.0.0.1/32",)
    assert str(settings.cache_directory) == "/somewhere"
    assert settings.namespace == "kapsa-system"


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("LOG_LEVEL", "loud", "KAPSA_LOG_LEVEL is 'loud', but must be one of DEBUG, INFO, WARNING, ERROR"),
        ("LOG_FORMAT", "xml", "KAPSA_LOG_FORMAT is 'xml', but must be one of json, console"),
        ("METRICS_PORT", "http", "KAPSA_METRICS_PORT is 'http', but must be a whole number, at least 0"),
        ("METRICS_PORT", "70000", "but must be a whole number, at least 0 and at most 65535"),
        (
            "METRICS_PORT",
            "9443",
            "KAPSA_WEBHOOK_PORT and KAPSA_METRICS_PORT are both 9443: choose another port",
        ),
        ("GIT_WEBHOOK_PORT", "x", "KAPSA_GIT_WEBHOOK_PORT is 'x', but must be a whole number, at least 0"),
        ("GIT_TIMEOUT", "0", "KAPSA_GIT_TIMEOUT is '0', but must be a number, more than 0 and at most 86400"),
        ("VERIFY_ADDRESS", "ingress", "but must be an address such as ingress.example.com:443"),
        ("GIT_IMAGE", "none", "KAPSA_GIT_IMAGE is '', but must be an image"),
        ("WEBHOOK_URL", "http://x", "but must be an address such as https://host:9443"),
        ("METRICS_ENABLED", "maybe", "KAPSA_METRICS_ENABLED is 'maybe', but must be true or false"),
        (
            "DEFAULT_POLL_INTERVAL",
            "5",
            "KAPSA_DEFAULT_POLL_INTERVAL is '5', but must be a number, at least 60",
        ),
        ("NAMESPACE", "Kapsa", "KAPSA_NAMESPACE is 'Kapsa', but must be the name of a namespace"),
        ("PREVIEW_DOMAIN", "a b", "KAPSA_PREVIEW_DOMAIN is 'a b', but must be a domain"),
        ("GIT_PROTOCOLS", "https,ext", "KAPSA_GIT_PROTOCOLS is 'ext', but must be https, ssh, http or file"),
        ("API_SERVER_CIDRS", "10.0.0.0/99", "KAPSA_API_SERVER_CIDRS is '10.0.0.0/99', but must be"),
        ("ROUTE_KIND", "HTTPRoute", "KAPSA_GATEWAY must name the Gateway"),
        ("GIT_PROTOCOLS", ",", "KAPSA_GIT_PROTOCOLS must name at least one protocol"),
        ("VERIFY_ADDRESS", "ingress:65536", "but must be an address such as ingress.example.com:443"),
        ("WEBHOOK_URL", "https://host:port", "but must be an address such as https://host:9443"),
        ("GIT_WEBHOOK_PORT", "8000", "KAPSA_GIT_WEBHOOK_SECRET must be set, too"),
    ],
)
def test_a_bad_value_is_one_clear_line(variable: str, value: str, line: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(line)) as caught:
        Settings.from_environment({"KAPSA_WEBHOOKS_ENABLED": "true", f"KAPSA_{variable}": value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("namespace", "build_namespace", "ingress_namespace", "kpack_service_account", "webhook_service"),
        *("kpack_builder_image", "buildkit_image", "kaniko_image", "git_image", "gateway", "webhook_url"),
        *(
            "preview_domain",
            "preview_environment_domain",
            "verify_address",
            "api_server_cidrs",
            "allowed_node_labels",
            "allowed_tolerations",
            "allowed_priority_classes",
            "allowed_runtime_classes",
            "allowed_schedulers",
            "git_protocols",
        ),
        *("cluster_issuer", "preview_environment_issuer", "ingress_class"),
    ],
)
def test_what_kubernetes_would_not_take_is_refused_at_the_start(name: str) -> None:
    variable = f"KAPSA_{name.upper()}"
    with pytest.raises(SettingsError, match=f"{variable} is 'two words', but must be "):
        Settings.from_environment({variable: "two words"})


def test_what_has_a_default_can_be_left_out_by_none() -> None:
    settings = Settings.from_environment(
        {"KAPSA_CLUSTER_ISSUER": "none", "KAPSA_PREVIEW_ENVIRONMENT_ISSUER": "None"}
    )
    assert (settings.cluster_issuer, settings.preview_environment_issuer) == ("", "")


def test_settings_are_written_as_they_are_read() -> None:
    settings = Settings(
        cluster_issuer="",
        metrics_enabled=False,
        git_timeout=0.5,
        git_protocols=("https", "file"),
        allowed_node_labels=(),
        cache_directory=Path("/somewhere"),
        git_webhook_port=8090,
        git_webhook_secret="x",
    )
    variables = {f"KAPSA_{name.upper()}": text for name, text in settings.changed().items()}
    assert len(variables) == 8
    assert Settings.from_environment(variables) == settings


def test_every_setting_is_documented() -> None:
    documented = Settings.documentation()
    assert ("KAPSA_DEFAULT_POLL_INTERVAL", "300") in [each[:2] for each in documented]
    for variable, default, text in documented:
        assert text, variable
        assert default != "none", variable
