"""Webhook configurations: defaults and validation."""

from __future__ import annotations

from kapsa.devcluster.embedded.kinds.names import dns1035_label
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import SUBDOMAIN, fields, given, one_of
from kapsa.devcluster.embedded.strategies.policy.match_rules import rule_with_operations
from kapsa.devcluster.embedded.strategies.policy.webhook_clients import validate_client
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required

_DEFAULTS = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
_MUTATING_DEFAULTS = {**_DEFAULTS, "reinvocationPolicy": "Never"}
_POLICIES = fields(
    failurePolicy=one_of("Fail", "Ignore"),
    matchPolicy=one_of("Equivalent", "Exact"),
    reinvocationPolicy=given(one_of("IfNeeded", "Never")),
)


class WebhookConfigurationStrategy(BuiltInStrategy):
    """Strategy of both mutating and validating webhook configurations."""

    @property
    def _mutating(self) -> bool:
        return self.info.resource.startswith("mutating")

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            for selector in ("namespaceSelector", "objectSelector"):
                if webhook.get(selector) is None:
                    webhook[selector] = {}
            defaults = _MUTATING_DEFAULTS if self._mutating else _DEFAULTS
            for field, value in defaults.items():
                if webhook.get(field) is None:
                    webhook[field] = value
            for rule in webhook.get("rules") or ():
                if rule.get("scope") is None:
                    rule["scope"] = "*"
            service = (webhook.get("clientConfig") or {}).get("service")
            if service is not None and service.get("port") is None:
                service["port"] = 443

    def validate_create(self, obj: Object) -> list[FieldError]:
        return [*self.validate(obj), *_conditions(obj)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = (
            [webhook.get("matchConditions") for webhook in each.get("webhooks") or ()] for each in (old, obj)
        )
        return self.validate(obj) if before == after else [*self.validate(obj), *_conditions(obj)]

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        names: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", webhook.get("name") or ""
            errors += _qualified_name(name, f"{path}.name")
            if name and name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
            errors += _webhook(webhook, path)
        return errors


def _conditions(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        if conditions := webhook.get("matchConditions"):
            # CEL is imported with the first condition: a server without any starts sooner.
            from kapsa.devcluster.embedded.strategies.policy.policy_expressions import match_conditions

            errors += match_conditions(conditions, f"webhooks[{index}].matchConditions", params=False)
    return errors


def _webhook(webhook: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(webhook.get("rules") or ()):
        errors += rule_with_operations(rule, f"{path}.rules[{index}]")
    errors += _POLICIES(webhook, path)
    effects = webhook.get("sideEffects")
    if effects is None:
        errors.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in ("None", "NoneOnDryRun"):
        errors.append(not_supported(f"{path}.sideEffects", effects, ["None", "NoneOnDryRun"]))
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], detail))
    for selector in ("namespaceSelector", "objectSelector"):
        errors += rules.label_selector(webhook[selector], f"{path}.{selector}")
    errors += validate_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    return errors + _review_versions(
        webhook.get("admissionReviewVersions"), f"{path}.admissionReviewVersions"
    )


def _qualified_name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    errors = SUBDOMAIN(name, path)
    if not errors and name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        errors.append(invalid(path, name, detail))
    return errors


def _review_versions(versions: list[str] | None, path: str) -> list[FieldError]:
    if not versions:
        return [required(path, "must specify one of v1, v1beta1")]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            errors += [invalid(f"{path}[{index}]", version, each) for each in dns1035_label(version)]
    if not set(versions) & {"v1", "v1beta1"}:
        errors.append(invalid(path, versions, "must include at least one of v1, v1beta1"))
    return errors
