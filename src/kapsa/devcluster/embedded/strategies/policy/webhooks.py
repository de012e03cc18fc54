"""Webhook configurations: defaults and validation."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.policy.match_rules import rule_with_operations
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required

_REINVOCATIONS = ("IfNeeded", "Never")


class WebhookConfigurationStrategy(BuiltInStrategy):
    """Strategy of both mutating and validating webhook configurations."""

    @property
    def _mutating(self) -> bool:
        return self.info.resource.startswith("mutating")

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            webhook["failurePolicy"] = webhook.get("failurePolicy") or "Fail"
            webhook["matchPolicy"] = webhook.get("matchPolicy") or "Equivalent"
            for selector in ("namespaceSelector", "objectSelector"):
                if webhook.get(selector) is None:
                    webhook[selector] = {}
            if webhook.get("timeoutSeconds") is None:
                webhook["timeoutSeconds"] = 10
            if self._mutating:
                webhook["reinvocationPolicy"] = webhook.get("reinvocationPolicy") or "Never"
            for rule in webhook.get("rules") or ():
                rule["scope"] = rule.get("scope") or "*"
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
            if name.count(".") < 2:
                detail = "should be a domain with at least three segments separated by dots"
                errors.append(invalid(f"{path}.name", name, detail))
            if name in names:
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
    if webhook["failurePolicy"] not in ("Fail", "Ignore"):
        errors.append(not_supported(f"{path}.failurePolicy", webhook["failurePolicy"], ["Fail", "Ignore"]))
    if webhook["matchPolicy"] not in ("Equivalent", "Exact"):
        errors.append(not_supported(f"{path}.matchPolicy", webhook["matchPolicy"], ["Equivalent", "Exact"]))
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
    reinvocation = webhook.get("reinvocationPolicy")
    if reinvocation is not None and reinvocation not in _REINVOCATIONS:
        errors.append(not_supported(f"{path}.reinvocationPolicy", reinvocation, _REINVOCATIONS))
    errors += _client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    versions = webhook.get("admissionReviewVersions")
    if not versions:
        errors.append(required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    elif not set(versions) & {"v1", "v1beta1"}:
        detail = "must include at least one of v1, v1beta1"
        errors.append(invalid(f"{path}.admissionReviewVersions", versions, detail))
    return errors


def _client(client: Object, path: str) -> list[FieldError]:
    if bool(client.get("url")) == bool(client.get("service")):
        detail = "exactly one of url or service is required"
        return [required(path, detail)] if not client.get("url") else [invalid(path, "", detail)]
    url = client.get("url")
    if url and not url.startswith("https://"):
        detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        return [invalid(f"{path}.url", url.partition(":")[0], detail)]
    return []
