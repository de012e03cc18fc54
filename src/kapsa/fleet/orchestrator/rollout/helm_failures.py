"""Failures of Helm, in its words but without values: a message may quote what an admission webhook quoted."""

from collections.abc import Mapping
from typing import Any

from kapsa.fleet.orchestrator.hidden_texts import HiddenTexts, secret_texts

__all__ = ["HELM_CONFLICT", "shown_failure"]

HELM_CONFLICT = "conflict occurred while applying"
"""The words of Helm for a field that another manager has set."""

_LIMIT = 1500


def shown_failure(message: str, values: Mapping[str, Any]) -> str:
    """Return a message of Helm, in one line, without the values of its run.

    The words that the engine looks for stay, even if a value such as `apply` is part of them. The message is cut last:
    half a value would not be recognized.
    """
    texts = set(secret_texts(values))
    hidden = HiddenTexts(texts | {" ".join(text.split()) for text in texts})
    return HELM_CONFLICT.join(hidden.redacted(part) for part in message.split(HELM_CONFLICT))[:_LIMIT]
