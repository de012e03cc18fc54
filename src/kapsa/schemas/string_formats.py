"""The string formats that kube-apiserver checks in custom resources; other formats are ignored."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr

_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s-?%s-?[0-9a-f]{12}"
_ANY4, _VARIANT = "[0-9a-f]{4}", "[89ab][0-9a-f]{3}"
_LETTER = r"[^\W_]"  # letters and digits of any script, as \p{L} with [0-9] in Go's pattern
_LABEL = rf"{_LETTER}(?:(?:{_LETTER}|-){{0,61}}{_LETTER})?"
_HOSTNAME = rf"(?:{_LETTER}(?:-?{_LETTER}{{0,62}})?|(?:{_LABEL}\.)+[^\W\d_]{{2,63}})"
_DATE_TIME = r"(\d{4}-\d\d-\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)"
_GO_DURATION = r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)"
_UNITS = "nanoseconds?|nanos?|ns|microseconds?|micros?|us|µs|milliseconds?|millis?|ms|seconds?|secs?|s"
_UNITS += "|minutes?|mins?|m|hours?|h|days?|d|weeks?|w"
_WORD_DURATION = rf"(?:(?:\d+)\s*(?:{_UNITS})\s*)+"
_CREDIT_CARD = (
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    r"|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})"
)
_RGB_PART = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_RGB = rf"rgb\({_RGB_PART},{_RGB_PART},{_RGB_PART}\)"
_SHORT_NAME = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LONG_NAME = rf"{_SHORT_NAME}(?:\.{_SHORT_NAME})*"
_URI_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*:"
_MAC = (
    r"(?:[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}"
    r"(?:\1[0-9a-fA-F]{2}\1[0-9a-fA-F]{2}(?:(?:\1[0-9a-fA-F]{2}){12})?)?"
    r"|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}(?:(?:\.[0-9a-fA-F]{4}){6})?)?)"
)


def is_checked(name: str) -> bool:
    """Return whether this string format is checked at all."""
    return name.replace("-", "") in _CHECKS


def matches(name: str, text: str) -> bool:
    """Return whether `text` has the format `name`, which must be one that is checked."""
    return _CHECKS[name.replace("-", "")](text)


def _full(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    # Compiled on first use and cached by re: most formats are never used.
    return lambda text: re.fullmatch(pattern, text, flags) is not None


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    return _full(_UUID % (third, fourth), re.IGNORECASE | re.ASCII)


def _is_hostname(text: str) -> bool:
    if re.fullmatch(_HOSTNAME, text) is None or len(text.encode()) > 255:
        return False
    return all(len(label.encode()) <= 63 for label in text.split("."))


def _strip_leading_zeros(text: str) -> str:
    """Normalize 010.0.0.1, which kube-apiserver accepts and Python's ipaddress does not."""
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in text.split("."))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(_strip_leading_zeros(text))
    except ValueError:
        return False
    return "%" not in text


def _is_ipv4(text: str) -> bool:
    return "." in text and _is_ip(text)


def _is_ipv6(text: str) -> bool:
    return ":" in text and _is_ip(text)


def _is_cidr(text: str) -> bool:
    address, slash, prefix = text.partition("/")
    if not slash or not _is_ip(address) or not prefix.isascii() or not prefix.isdigit():
        return False
    return int(prefix) <= (128 if ":" in address else 32)


def _is_uri(text: str) -> bool:
    """Return whether Go's url.ParseRequestURI accepts `text`: an absolute URI or an absolute path."""
    if not text or any(ord(character) < 0x21 or character == "\x7f" for character in text):
        return False
    if not text.startswith("/") and re.match(_URI_SCHEME, text) is None:
        return False
    return re.search(r"%(?![0-9a-fA-F]{2})", text) is None


def _is_email(text: str) -> bool:
    name, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    if not at or not local or not domain or "@" in local.strip('"').replace('"', ""):
        return False
    return bool(name) or text.strip() in (address, f"<{address}>")


def _is_date(text: str) -> bool:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    parts = re.fullmatch(_DATE_TIME, text)
    if parts is None or not _is_date(parts[1]):
        return False
    return int(parts[2]) <= 23 and int(parts[3]) <= 59 and int(parts[4]) <= 59


def _is_duration(text: str) -> bool:
    return re.fullmatch(_GO_DURATION, text) is not None or re.fullmatch(_WORD_DURATION, text) is not None


def _is_base64(text: str) -> bool:
    if not text:
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _isbn_digits(text: str) -> str:
    return re.sub(r"[\s-]+", "", text)


def _is_isbn10(text: str) -> bool:
    digits = _isbn_digits(text)
    if re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII) is None:
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum((index + 1) * value for index, value in enumerate(values)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _isbn_digits(text)
    if re.fullmatch(r"\d{13}", digits, re.ASCII) is None:
        return False
    return sum((3 if index % 2 else 1) * int(digit) for index, digit in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if re.fullmatch(_CREDIT_CARD, digits) is None:
        return False
    doubled = [sum(divmod(int(digit) * (1 + index % 2), 10)) for index, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _full(r"[0-9a-fA-F]{24}"),
    "byte": _is_base64,
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _is_email,
    "hexcolor": _full(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_SHORT_NAME, text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(_LONG_NAME, text) is not None,
    "mac": lambda text: re.fullmatch(_MAC, text) is not None,
    "password": lambda text: True,
    "rgbcolor": lambda text: re.fullmatch(_RGB, text) is not None,
    "ssn": _full(r"\d{3}[- ]?\d{2}[- ]?\d{4}", re.ASCII),
    "uri": _is_uri,
    "uuid": _uuid(_ANY4, _ANY4),
    "uuid3": _uuid("3[0-9a-f]{3}", _ANY4),
    "uuid4": _uuid("4[0-9a-f]{3}", _VARIANT),
    "uuid5": _uuid("5[0-9a-f]{3}", _VARIANT),
}
