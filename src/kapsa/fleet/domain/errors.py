"""Errors that a person caused and can correct. The API turns each into a problem document."""

import msgspec

__all__ = [
    "DomainError",
    "InvalidField",
    "InvalidInput",
    "NotAllowed",
    "StateConflict",
    "UnknownObject",
    "VersionMismatch",
]

# ruff: noqa: N818 - the names say what happened


class InvalidField(msgspec.Struct, frozen=True):
    """One offending field of a request."""

    path: str
    """The full path, as a JSON pointer: `/canaryConfig/initialPercentage`."""
    message: str
    """The reason, and the remedy."""


class DomainError(Exception):
    """The base of all errors of the domain."""


class InvalidInput(DomainError):
    """A request that can never succeed as it is. The API answers 400."""

    def __init__(self, message: str, *fields: InvalidField) -> None:
        super().__init__(message)
        self.fields = fields


class NotAllowed(DomainError):
    """A request that this principal may not make. The API answers 403."""


class UnknownObject(DomainError):
    """A name or an id that does not exist, or that the principal may not see. The API answers 404."""


class StateConflict(DomainError):
    """A request that the present state of its object does not permit. The API answers 409."""


class VersionMismatch(StateConflict):
    """A change that is based on another version than the present one. The API answers 412."""
