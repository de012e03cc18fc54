"""Bodies of requests: decoded strictly, with the full path of what is wrong in them."""

import re
from typing import Any

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = ["decode_body"]

_FIELD = re.compile(r"(?:unknown|required) field `([^`]*)`")
_LOCATION = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_DEEPEST = 64


def decode_body(content: bytes, kind: Any) -> Any:
    """Return the body as an instance of its type.

    Raises InvalidInput that names the offending field. Types are not converted: the text "5" is not a number.
    """
    if not content:
        raise _invalid("", "the body is missing: send a JSON object")
    try:
        body = msgspec.json.decode(content, type=kind)
        _check_texts(msgspec.json.decode(content), "", _DEEPEST)
    except msgspec.ValidationError as error:
        raise _located(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid("", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _invalid("", "the body is nested too deep") from None
    return body


def _located(message: str) -> InvalidInput:
    match = _LOCATION.search(message)
    path = _pointer(match[1]) if match else ""
    reason = message[: match.start()] if match else message
    if field := _FIELD.search(reason):
        path = f"{path}/{field[1]}"
    return _invalid(path, reason[:300])


def _pointer(location: str) -> str:
    """Return msgspec's `.strategy.percentages[1]` as the JSON pointer `/strategy/percentages/1`."""
    steps = (name or ("*" if index == "..." else index) for name, index in _STEP.findall(location))
    return "".join(f"/{step}" for step in steps)


def _invalid(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}" if path else message, InvalidField(path, message))


def _check_texts(value: Any, path: str, depth: int) -> None:
    """Raise InvalidInput for texts that PostgreSQL cannot store, and for bodies that are nested too deep."""
    if isinstance(value, str):
        if "\0" in value:
            raise _invalid(path, "contains the character U+0000, which cannot be stored")
        return
    if isinstance(value, (dict, list)) and depth == 0:
        raise _invalid(path, f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict):
        for key, each in value.items():
            _check_texts(key, path, depth)
            _check_texts(each, f"{path}/{_escaped(key)}", depth - 1)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _check_texts(each, f"{path}/{index}", depth - 1)


def _escaped(key: str) -> str:
    return key[:80].replace("~", "~0").replace("/", "~1")
