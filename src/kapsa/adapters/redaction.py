"""Redaction: text without secrets, safe to log, to show and to keep in a status.

Given secrets are replaced in all their encodings. In addition, anything that looks like a secret is replaced:
passwords in URLs, Authorization headers, private keys and well-known tokens.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

__all__ = ["HIDDEN", "Redactor", "printable", "redact", "tail"]

HIDDEN = "***"
_SHORTEST_SECRET = 4
"""Shorter secrets occur in texts by chance, and hiding them would reveal where."""

_LOOKS_SECRET = (
    # One letter before it, not several: the pattern would be tried from each letter again.
    (re.compile(r"(?<=[A-Za-z]://)[^/\s@'\"]{1,1024}@"), f"{HIDDEN}@"),
    (
        re.compile(r"(?i)\b(authorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?(?:(?:basic|bearer|token)\s{1,9})?)[^\s\"',]+"),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,9})[A-Za-z0-9._~+/=-]{8,}"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)[\"']?\s{0,9}[:=]\s{0,9})"
            r"(?![\s\"']*\*\*\*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&]+)"
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,64}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,64}PRIVATE KEY-----|\Z)", re.DOTALL),
        HIDDEN,
    ),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|dckr_pat_|npm_)[A-Za-z0-9_-]{10,}"), HIDDEN),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), HIDDEN),
)  # fmt: skip
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_OTHER_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Redactor:
    """The replacement of the same secrets in many texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """Replace the secrets, and anything that looks like one."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        for pattern, replacement in _LOOKS_SECRET:
            text = pattern.sub(replacement, text)
        return text


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace the given secrets, and anything that looks like one."""
    return Redactor(secrets).redact(text)


def printable(text: str) -> str:
    """Remove escape sequences, control and bidi characters, which could forge a log line."""
    text = _ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _OTHER_CONTROL.sub("", text)


def tail(text: str, *, secrets: Iterable[str] = (), lines: int = 40, characters: int = 4096) -> str:
    """Return the last lines of a log, printable and without secrets."""
    # Redact more than is returned: a secret that is cut in two would not be recognized.
    safe = redact(printable(text[-8 * characters :]), secrets)
    kept = "\n".join([line.rstrip() for line in safe.splitlines() if line.strip()][-lines:])
    if len(kept) <= characters:
        return kept
    return "…" + kept[1 - characters :]


def _forms(secret: str) -> Iterable[str]:
    """Yield a secret as it is, URL-encoded, in base64 and line by line."""
    if len(secret.strip()) < _SHORTEST_SECRET:
        return
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield base64.b64encode(secret.encode()).decode()
    for line in secret.splitlines():
        if len(line.strip()) >= 2 * _SHORTEST_SECRET:
            yield line.strip()
