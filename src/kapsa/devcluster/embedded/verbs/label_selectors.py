"""The labelSelector query: `app=web,tier in (a,b),!canary`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kapsa.devcluster.embedded.kinds.names import label_key, label_value
from kapsa.devcluster.embedded.requests.field_terms import SelectorError
from kapsa.schemas.field_errors import invalid

__all__ = ["LabelMatcher", "parse"]

LabelMatcher = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),><]|[^=!(),>< \t\r\n]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", ">", "<"})
_OPERATORS = frozenset({"=", "==", "!=", ">", "<", "in", "notin"})
_END = ""


def parse(text: str) -> LabelMatcher | None:
    """Return the selector as a predicate on labels; None if it selects everything.

    Raises SelectorError if it is invalid.
    """
    parser = _Parser(text)
    requirements = parser.requirements()
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(requirement(labels) for requirement in requirements)


class _Parser:
    def __init__(self, text: str) -> None:
        # kube-apiserver's lexer takes a zero byte for the end.
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text.partition("\0")[0])]
        self._position = 0

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _take(self) -> str:
        word = self._peek()
        self._position += 1
        return word

    def requirements(self) -> list[LabelMatcher]:
        requirements: list[LabelMatcher] = []
        while (word := self._peek()) != _END:
            if word in _SYMBOLS and word != "!":
                raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            word = self._take()
            if word == _END:
                break
            if word != ",":
                raise SelectorError(f"found '{word}', expected: ',' or 'end of string'")
            following = self._peek()
            if following == _END or (following in _SYMBOLS and following != "!"):
                raise SelectorError(f"found '{following}', expected: identifier after ','")
        return requirements

    def _requirement(self) -> LabelMatcher:
        word = self._take()
        negated = word == "!"
        key = self._take() if negated else word
        if key == _END or key in _SYMBOLS:
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key)
        if self._peek() in (_END, ","):
            return (lambda labels: key not in labels) if negated else (lambda labels: key in labels)
        if negated:
            # kube-apiserver parses an operator after !key and ignores it.
            word = self._take()
            if word not in _OPERATORS:
                raise SelectorError(_expected_operator(word))
            self._values(word)
            return lambda labels: key not in labels
        operator = self._take()
        if operator not in _OPERATORS:
            raise SelectorError(_expected_operator(operator))
        return _matcher(key, operator, self._values(operator))

    def _values(self, operator: str) -> list[str]:
        if operator in ("in", "notin"):
            return self._value_set()
        word = self._peek()
        if word in (_END, ","):
            return [""]
        self._take()
        if word in _SYMBOLS:
            raise SelectorError(f"found '{word}', expected: identifier")
        return [word]

    def _value_set(self) -> list[str]:
        word = self._take()
        if word != "(":
            raise SelectorError(f"found '{word}' expected: '('")
        if self._peek() == _END or (self._peek() in _SYMBOLS and self._peek() not in (",", ")")):
            raise SelectorError(f"found '{self._peek()}', expected: ',', ')' or identifier")
        values: set[str] = set()
        pending = ""
        while True:
            word = self._take()
            if word == ")":
                values.add(pending)
                return sorted(values)
            if word == ",":
                values.add(pending)
                pending = ""
            elif pending:
                raise SelectorError(f"found '{word}', expected: ',' or ')'")
            elif word == _END or word in _SYMBOLS:
                raise SelectorError(f"found '{word}', expected: ',', or identifier")
            else:
                pending = word


def _expected_operator(word: str) -> str:
    return f"found '{word}', expected: in, notin, =, ==, !=, gt, lt"


def _check_key(key: str) -> None:
    problems = label_key(key)
    if problems:
        raise SelectorError(str(invalid("<nil>", key, "; ".join(problems))))


def _matcher(key: str, operator: str, values: list[str]) -> LabelMatcher:
    for index, value in enumerate(values):
        if operator in "<>" and not re.fullmatch(r"[+-]?[0-9]+", value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise SelectorError(str(invalid(f"values[{index}]", value, detail)))
        problems = label_value(value)
        if problems:
            raise SelectorError(str(invalid(f"values[{index}][{key}]", value, "; ".join(problems))))
    if operator in (">", "<"):
        bound = int(values[0])
        return lambda labels: _compares(labels.get(key), bound, operator)
    accepted = frozenset(values)
    if operator in ("!=", "notin"):
        return lambda labels: labels.get(key) not in accepted
    if len(values) == 1 and values[0]:
        only = values[0]
        return lambda labels: labels.get(key) == only
    return lambda labels: key in labels and labels[key] in accepted


def _compares(value: str | None, bound: int, operator: str) -> bool:
    if value is None or not re.fullmatch(r"[+-]?[0-9]+", value):
        return False
    return int(value) > bound if operator == ">" else int(value) < bound
