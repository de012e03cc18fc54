"""The note of the event that a failed run leaves on its resource: what failed, without what may be secret.

Everybody who may read the namespace's events sees it, which is more people than those who may read its Secrets
or the operator's log. The message of an exception may contain a password or a whole object, so it stays in the log.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from kapsa.runtime.errors import AlreadyExists, Forbidden, Invalid, NotFound, UnknownKind

__all__ = ["failure_note"]

_LOG = "the operator's log has the details"
_STANDARD_LIBRARY = str(Path(os.__file__).parent)
_PUBLIC = (AlreadyExists, Forbidden, NotFound, UnknownKind)
"""Errors whose messages name objects and rights, never their content."""


def failure_note(error: Exception) -> str:
    """Return the note for a failure of `reconcile` or `finalize`."""
    if isinstance(error, Invalid):  # the server's message repeats the rejected values
        fields = ", ".join(sorted({cause.field for cause in error.causes if cause.field}))
        return f"{error.action} was rejected as invalid{f': {fields}' if fields else ''}; {_LOG}"
    if isinstance(error, _PUBLIC):
        return str(error)
    return f"{type(error).__name__}{_where(error)}; {_LOG}"


def _where(error: Exception) -> str:
    """Return the innermost line of the author's code, not of a library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        library = frame.filename.startswith(_STANDARD_LIBRARY) or "site-packages" in path.parts
        if not library and ("kapsa", "runtime") not in zip(path.parts, path.parts[1:], strict=False):
            return f" in {frame.name} ({path.name}:{frame.lineno})"
    return ""
