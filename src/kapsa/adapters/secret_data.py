"""The data of a Kubernetes Secret as text, for the credentials of git servers and registries."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.errors import AuthFailed

__all__ = ["decoded_secret"]

_LARGEST = 1024 * 1024


def decoded_secret(secret: Mapping[str, Any]) -> dict[str, str]:
    """Return the text values of a Secret, decoded. Values that are not UTF-8 text are skipped.

    Raises `AuthFailed` when a value has several lines where one is expected, or when the Secret is too large.
    """
    decoded: dict[str, str] = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, TypeError, ValueError):
            continue
    decoded |= {key: str(value) for key, value in (secret.get("stringData") or {}).items()}
    for key in ("username", "password", "token", "bearerToken"):
        if key in decoded:
            decoded[key] = decoded[key].strip("\r\n")
            if "\n" in decoded[key] or "\0" in decoded[key]:
                raise AuthFailed(f"{key} in the Secret must be a single line")
    if sum(map(len, decoded.values())) > _LARGEST:
        raise AuthFailed(f"the Secret holds more than {_LARGEST // 1024} KB, too much for credentials")
    return decoded
