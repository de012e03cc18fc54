"""Names: validation for each kind, for labels and for path segments; generated names."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from random import Random

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo

__all__ = [
    "config_key",
    "dns1035_label",
    "dns1123_label",
    "dns1123_subdomain",
    "generate",
    "label_key",
    "label_value",
    "path_segment",
    "search_domain",
    "validator_of",
]

NameValidator = Callable[[str, bool], list[str]]
"""Takes a name, and whether it is a prefix (generateName); returns the problems."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY_NAME}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH_DOMAIN = rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*"
_SEARCH_DOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SEARCH_DOMAIN}')"
)
_is_search_domain = re.compile(_SEARCH_DOMAIN).fullmatch
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    f"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '({_KEY_NAME})?')"
)

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_key_name = re.compile(_KEY_NAME).fullmatch


def dns1123_label(name: str, prefix: bool = False) -> list[str]:
    """Return the problems of an RFC 1123 label."""
    name = _complete(name) if prefix else name
    problems = [] if len(name.encode()) <= 63 else ["must be no more than 63 characters"]
    if not _is_label(name):
        problems.append("must not contain dots" if _is_subdomain(name) else _LABEL_TEXT)
    return problems


def dns1123_subdomain(name: str, prefix: bool = False) -> list[str]:
    """Return the problems of an RFC 1123 subdomain."""
    name = _complete(name) if prefix else name
    problems = [] if len(name.encode()) <= 253 else ["must be no more than 253 characters"]
    if not _is_subdomain(name):
        problems.append(_SUBDOMAIN_TEXT)
    return problems


def search_domain(name: str) -> list[str]:
    """Return the problems of a DNS search domain, in which a label may have underscores."""
    problems = [] if len(name.encode()) <= 253 else ["must be no more than 253 characters"]
    if not _is_search_domain(name):
        problems.append(_SEARCH_DOMAIN_TEXT)
    return problems


def _subdomain_in_bytes(name: str, prefix: bool = False) -> list[str]:
    return [_in_bytes(problem) for problem in dns1123_subdomain(name, prefix)]


def _in_bytes(problem: str) -> str:
    return problem.replace("characters", "bytes") if "more than" in problem else problem


def dns1035_label(name: str, prefix: bool = False) -> list[str]:
    """Return the problems of a DNS-1035 label."""
    name = _complete(name) if prefix else name
    problems = [] if len(name.encode()) <= 63 else ["must be no more than 63 characters"]
    if not _is_label_1035(name):
        problems.append(_LABEL_1035_TEXT)
    return problems


def path_segment(name: str, prefix: bool = False) -> list[str]:
    """Return the problems of a name that must be one segment of a URL, such as a role's."""
    if not prefix and name in (".", ".."):
        return [f"may not be '{name}'"]
    if "/" not in name and "%" not in name:
        return []
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def _complete(prefix: str) -> str:
    # A generated name ends in a random suffix, so its prefix may end in a dash.
    return prefix[:-1] + "a" if prefix.endswith("-") else prefix


def label_key(key: str) -> list[str]:
    """Return the problems of a label's or annotation's key, or of a finalizer's name."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_KEY_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        # The real server counts the bytes of a prefix, but the characters of a name.
        problems.extend(f"prefix part {_in_bytes(problem)}" for problem in dns1123_subdomain(prefix))
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _is_key_name(name):
        problems.append(f"name part {_KEY_TEXT}")
    return problems


def label_value(value: str) -> list[str]:
    """Return the problems of a label's value."""
    problems = [] if len(value.encode()) <= 63 else ["must be no more than 63 bytes"]
    if value and not _is_key_name(value):
        problems.append(_VALUE_TEXT)
    return problems


_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_is_config_key = re.compile("[-._a-zA-Z0-9]+").fullmatch


def config_key(key: str) -> list[str]:
    """Return the problems of a key of a ConfigMap or Secret."""
    problems = [] if len(key) <= 253 else ["must be no more than 253 characters"]
    if not _is_config_key(key):
        problems.append(_CONFIG_KEY_TEXT)
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


_LABEL_NAMES = {("", "namespaces"), ("", "services"), ("apps", "statefulsets")}
_COUNTED_IN_BYTES = {("", "replicationcontrollers"), ("resource.k8s.io", "deviceclasses")}
"""Kinds whose names the real server checks by its newer rules, which say `bytes` for `characters`."""
_PATH_NAMES = {
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("policy", "poddisruptionbudgets"),
    ("apiregistration.k8s.io", "apiservices"),
    ("", "events"),
}


def validator_of(info: ResourceInfo) -> NameValidator:
    """Return the validator for names of a kind."""
    key = (info.group, info.resource)
    if key in _LABEL_NAMES:
        return dns1123_label
    if key in _COUNTED_IN_BYTES:
        return _subdomain_in_bytes
    if key == ("networking.k8s.io", "ipaddresses"):
        return _address
    if key in _PATH_NAMES:
        return path_segment
    return dns1123_subdomain


def _address(name: str, prefix: bool = False) -> list[str]:
    try:
        proper = str(ip_address(name))
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return [] if proper == name else [f'must be in canonical form ("{proper}")']


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAXIMUM_PREFIX = 58


def generate(prefix: str, random: Random) -> str:
    """Return a name of a prefix and five random characters that cannot spell words."""
    return prefix[:_MAXIMUM_PREFIX] + "".join(random.choices(_ALPHABET, k=5))
