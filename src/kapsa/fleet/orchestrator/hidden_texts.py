"""Hidden texts: what nobody may see in a plan or a deployment, in whatever form it comes.

A secret value is hidden wherever it is shown: in a text around it, in base64, in base64 within a text, and twice
encoded. Text that looks like a secret is hidden as well.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from kapsa.adapters.redaction import Redactor
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.values import MASK, masked, merge_values

__all__ = ["HiddenTexts", "seal_sensitive", "secret_texts", "shown_values", "texts_at"]

_SHORTEST_NUMBER = 4
_BASE64 = (re.compile(r"[A-Za-z0-9+/]{8,}"), re.compile(r"[A-Za-z0-9_-]{8,}"))
_STANDARD = str.maketrans("-_", "+/")
_FOLD = re.compile(r"\s+|\\[nrt]")
"""White space, also as a JSON text has it."""
_MOST_COMPARISONS = 1_000_000
"""Texts times secrets that are compared. Above it all values are sealed with their keys, for a request must not stop the manager."""
_MOST_WORK = 300_000_000
"""Characters times secrets that are compared, about two seconds. The largest values pass with a few secrets."""
_DECODING = 500
"""The work of decoding a text, in secrets that it could be compared with meanwhile."""


class HiddenTexts:
    """Secrets, and how anything that may contain one is shown."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets)
        self._redactor = Redactor(self._secrets)

    @property
    def count(self) -> int:
        """The number of secrets."""
        return len(self._secrets)

    def affordable(self, *documents: Any) -> bool:
        """Return whether all texts of documents can be compared with the secrets in a moment."""
        sizes = [len(text) for document in documents for text in _texts(document)]
        comparisons, work = len(sizes) * self.count, sum(sizes) * (self.count + _DECODING)
        return comparisons <= _MOST_COMPARISONS and work <= _MOST_WORK

    def shown(self, node: Any) -> Any:
        """Return a document in which everything secret is masked, in keys, too."""
        if isinstance(node, Mapping):
            return {self.text(str(key)): self.shown(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [self.shown(value) for value in node]
        if isinstance(node, str):
            return node if node == MASK else self.text(node)
        return MASK if not isinstance(node, bool) and str(node) in self._secrets else node

    def text(self, text: str) -> str:
        """Return a text without secrets; a mask alone if a part of it encodes one."""
        return MASK if self._encodes(text) else self.redacted(text)

    def redacted(self, text: str) -> str:
        """Return a text in which each secret is replaced, and the rest can be read."""
        return self._redactor.redact(text)

    def _encodes(self, text: str, depth: int = 3) -> bool:
        """Return whether a part of a text is the base64 of one with a secret in it: a login, a private key."""
        plain = "\n".join(_decoded(text)) if depth else ""
        return bool(plain) and (self.redacted(plain) != plain or self._encodes(plain, depth - 1))


def _decoded(text: str) -> Iterator[str]:
    """Yield what the base64 in a text may mean. It may be folded, escaped, and part of a longer word.

    A code that follows other letters begins at one of four offsets; what is decoded before it is noise.
    """
    unfolded = _FOLD.sub("", unquote(text)).replace("\\/", "/")
    runs = dict.fromkeys(run.translate(_STANDARD) for each in _BASE64 for run in each.findall(unfolded))
    for run in runs:
        for offset in range(4):
            whole = len(run) - ((len(run) - offset) % 4 == 1)
            part = run[offset:whole]
            yield base64.b64decode(part + "=" * (-len(part) % 4)).decode(errors="replace")


def texts_at(values: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the texts and long numbers at and below these paths of values."""
    for path in paths:
        node: Any = values
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        yield from secret_texts(node)


def secret_texts(node: Any) -> Iterator[str]:
    """Yield the texts and long numbers of a document that is secret as a whole."""
    if isinstance(node, Mapping):
        for value in node.values():
            yield from secret_texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from secret_texts(value)
    elif isinstance(node, str) or (
        isinstance(node, int | float) and len(str(node)) > _SHORTEST_NUMBER and not isinstance(node, bool)
    ):
        yield str(node)


def seal_sensitive(
    values: Mapping[str, Any], secret_values: Mapping[str, Any], hidden: HiddenTexts
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return values that may be shown, and secret ones with each value that shows a secret in any form.

    The two merge to what the values given here merge to. A masked text stays where a value was, so that people see
    that it is set; an entry whose key is sensitive is left out. Raises InvalidInput if such an entry is not a map and the
    secret values have a map for it: one layer cannot both remove the map of a layer below and set another one.
    """
    open_values: dict[str, Any] = {}
    sealed: Mapping[str, Any] = values
    if hidden.affordable(values):
        open_values, sealed = _split(values, hidden)
    if _replaces_unseen(sealed, secret_values, open_values):
        raise _replaced_twice()
    return open_values, merge_values(sealed, secret_values)


def shown_values(
    values: Mapping[str, Any], secret_paths: frozenset[tuple[str, ...]], hidden: HiddenTexts | None = None
) -> tuple[dict[str, Any], int]:
    """Return values for people, and how many of those that are not secret themselves are hidden.

    Secret values are masked, and so is each other value that shows one in any form, and each key with what is below it:
    an approver sees that something is set. `hidden` are the texts that are secret, if more is secret than these values.
    """
    hidden = hidden or HiddenTexts(texts_at(values, secret_paths))
    plain = masked(values, secret_paths)
    if not hidden.affordable(plain):
        return {MASK: MASK}, sum(1 for each in _scalars(plain) if each != MASK)
    shown, sealed = seal_sensitive(plain, {}, hidden)
    return _with_keys(shown, sealed, hidden), sum(1 for _ in _scalars(sealed))


def _with_keys(shown: Mapping[str, Any], sealed: Mapping[str, Any], hidden: HiddenTexts) -> dict[str, Any]:
    """Return values that may be shown, with a mask for the entries that were left out because of their keys."""
    result = dict(shown)
    for key, value in sealed.items():
        if key in shown and not isinstance(value, Mapping):
            continue
        if key not in shown and hidden.text(key) != key:
            result[MASK] = MASK
        else:
            result[key] = _with_keys(shown.get(key, {}), value, hidden)
    return result


def _replaces_unseen(
    sealed: Mapping[str, Any], secret_values: Mapping[str, Any], shown: Mapping[str, Any]
) -> bool:
    """Return whether secret values have a map in place of a sealed value for which no mask is shown."""
    for key in sealed.keys() & secret_values.keys():
        value, secret, visible = sealed[key], secret_values[key], shown.get(key, {})
        if not isinstance(secret, Mapping) or not isinstance(visible, Mapping):
            continue
        if not isinstance(value, Mapping) or _replaces_unseen(value, secret, visible):
            return True
    return False


def _replaced_twice() -> InvalidInput:
    message = (
        "has a value that secretValues replace by a map, and that cannot be shown: leave it out of values"
    )
    return InvalidInput(f"values {message}", InvalidField("/values", message))


def _split(values: Mapping[str, Any], hidden: HiddenTexts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that may be shown, and those that may not."""
    open_values: dict[str, Any] = {}
    sealed: dict[str, Any] = {}
    for key, value in values.items():
        if hidden.text(key) != key:
            sealed[key] = value
        elif isinstance(value, Mapping):
            inner, secret = _split(value, hidden)
            if inner or not value:
                open_values[key] = inner
            if secret:
                sealed[key] = secret
        elif hidden.shown(value) != value:
            open_values[key], sealed[key] = MASK, value
        else:
            open_values[key] = value
    return open_values, sealed


def _scalars(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping | list):
        for value in node.values() if isinstance(node, Mapping) else node:
            yield from _scalars(value)
    else:
        yield node


def _texts(node: Any) -> Iterator[str]:
    """Yield everything of a document that is compared: keys, texts and numbers."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield str(key)
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _texts(value)
    else:
        yield str(node)
