"""Calls that did not succeed: the cause as the manager reports it, and what to do about it."""

from __future__ import annotations

from typing import Any

from kapsa.cli.tables import printable

__all__ = ["CallRefused", "ManagerUnavailable", "refusal"]

# ruff: noqa: N818 - named as what happened

_ADVICE = {
    401: "run `kapsa fleet login` again with a new token",
    403: "`kapsa fleet whoami` shows your roles",
    412: "somebody else was faster: look at it, and run the command again",
}
_TRUNCATE = 2000


class ManagerUnavailable(Exception):
    """A manager that does not answer, or not as a manager does."""

    for_the_user = True


class CallRefused(Exception):
    """A call that the manager answered with a problem."""

    for_the_user = True

    def __init__(self, call: str, status: int, detail: str, advice: str = "") -> None:
        self.status = status
        self.detail = detail
        more = f"; {advice}" if advice else ""
        super().__init__(f"{call} was refused ({status}): {detail.rstrip('.')}{more}")


def refusal(call: str, status: int, problem: Any, retry_after: str = "") -> CallRefused:
    """Return the error for a problem document, with the offending fields and what to do."""
    document = problem if isinstance(problem, dict) else {}
    detail = printable(document.get("detail") or "no reason was given")[:_TRUNCATE]
    errors = document.get("errors")
    fields = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    texts = [f"{each.get('path', '')}: {each.get('message', '')}" for each in fields]
    extra = [printable(text) for text in texts if str(text).partition(": ")[2] not in detail]
    detail = "; ".join([detail, *extra])[:_TRUNCATE]
    advice = _ADVICE.get(status, "")
    if status == 429:
        advice = f"wait {retry_after} s" if retry_after.isdigit() else "wait a minute"
    return CallRefused(call, status, detail, advice)
