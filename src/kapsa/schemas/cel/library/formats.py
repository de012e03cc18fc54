"""Named formats: `format.dns1123Label().validate(text)` returns the errors in a text, if it has any."""

from __future__ import annotations

import re
from collections.abc import Callable

from kapsa.schemas import string_formats
from kapsa.schemas.cel.library.networks import parse_url
from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import NONE, CelEvaluationError, Opaque, Optional

__all__ = ["FUNCTIONS", "NamedFormat"]

Check = Callable[[str], list[str]]
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_NAME_RULE = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def _does_not_match(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, most: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {most} {unit}"] if len(text.encode()) > most else []


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _label(text: str) -> list[str]:
    errors = _too_long(text, 63)
    if not _fits(_LABEL, text):
        dotted = _fits(_SUBDOMAIN, text)
        errors.append(
            "must not contain dots" if dotted else _does_not_match(_LABEL_RULE, _LABEL, "my-name", "123-abc")
        )
    return errors


def _subdomain(text: str) -> list[str]:
    errors = _too_long(text, 253)
    if not _fits(_SUBDOMAIN, text):
        errors.append(_does_not_match(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
    return errors


def _label_1035(text: str) -> list[str]:
    errors = _too_long(text, 63)
    if not _fits(_LABEL_1035, text):
        errors.append(_does_not_match(_LABEL_1035_RULE, _LABEL_1035, "my-name", "abc-123"))
    return errors


def _prefix(check: Check) -> Check:
    """Check a name to which a suffix will be added: it may end in a dash."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    errors: list[str] = []
    parts = text.split("/")
    rule = _does_not_match(_NAME_RULE, _NAME, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {rule} {optional}"]
    if len(parts) == 2:
        prefix = parts[0]
        problems = _too_long(prefix, 253, "bytes")
        if not _fits(_SUBDOMAIN, prefix):
            problems.append(_does_not_match(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
        problems = problems if prefix else ["must be non-empty"]
        errors += [f"prefix part {problem}" for problem in problems]
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    errors += [f"name part {problem}" for problem in _too_long(name, 63, "bytes")]
    if not _fits(_NAME, name):
        errors.append(f"name part {rule}")
    return errors


def _label_value(text: str) -> list[str]:
    errors = _too_long(text, 63, "bytes")
    if not _fits(f"({_NAME})?", text):
        errors.append(_does_not_match(_VALUE_RULE, f"({_NAME})?", "MyValue", "my_value", "12345"))
    return errors


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except CelEvaluationError as error:
        return [str(error)]
    return []


def _checked(format_: str, problem: str) -> Check:
    return lambda text: [] if string_formats.matches(format_, text) else [problem]


class NamedFormat(Opaque):
    """A format of strings with a name."""

    __slots__ = ("check", "name", "pattern_size")
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str, check: Check, pattern_size: int) -> None:
        self.name = name
        self.check = check
        self.pattern_size = pattern_size
        """The length of the regular expression that stands for the check in its cost."""

    def validate(self, text: str) -> Optional:
        """Return the errors in a text, nothing if it has the format."""
        errors = self.check(text)
        return Optional(errors) if errors else NONE


FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _checked("uuid", "does not match the UUID format"), 84),
    "byte": NamedFormat("byte", _checked("byte", "invalid base64"), 84),
    "date": NamedFormat("date", _checked("date", "invalid date"), 108),
    "datetime": NamedFormat("datetime", _checked("datetime", "invalid datetime"), 108),
}


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _constant(format_: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: format_


FUNCTIONS: Functions = {
    "validate": [
        method(
            "format-validate",
            "kubernetes.NamedFormat; string",
            "optional_type(list(string))",
            NamedFormat.validate,
        )
    ],
    "format.named": [function("format-named", "string", "optional_type(kubernetes.NamedFormat)", _named)],
} | {
    f"format.{name}": [function(f"format.{name}", "", "kubernetes.NamedFormat", _constant(format_))]
    for name, format_ in FORMATS.items()
}
