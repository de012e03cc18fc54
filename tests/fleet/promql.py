"""An evaluator of alert rules over recorded metrics, for the part of PromQL that the alerts of the manager use.

It reads selectors, ranges, `increase`, `rate`, `absent`, `histogram_quantile`, `sum` and `max` with `by`, `/` and `>`,
and refuses anything else. An increase is the difference of two samples: it is not extrapolated, as Prometheus does it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

LOOKBACK = 300.0
_TOKEN = re.compile(r'\s*([A-Za-z_:][\w:]*|\d+(?:\.\d+)?[smhd]?|"[^"]*"|=~|!~|!=|[{}()\[\],/>=])')
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> float:
    """Return the seconds of a duration such as 15m."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


class Recording:
    """The samples of many scrapes."""

    def __init__(self) -> None:
        self.series: dict[str, dict[Labels, list[tuple[float, float]]]] = {}

    def scrape(self, registry: CollectorRegistry, moment: float) -> None:
        """Record all samples of a registry."""
        for family in registry.collect():
            for sample in family.samples:
                labels = frozenset(sample.labels.items())
                points = self.series.setdefault(sample.name, {}).setdefault(labels, [])
                points.append((moment, sample.value))

    def select(
        self, name: str, matches: Callable[[Mapping[str, str]], bool], since: float, until: float
    ) -> dict[Labels, list[float]]:
        """Return the values of the series with a name, within a time."""
        chosen = {}
        for labels, points in self.series.get(name, {}).items():
            values = [value for moment, value in points if since < moment <= until]
            if values and matches(dict(labels)):
                chosen[labels] = values
        return chosen


class Query:
    """One expression."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s+(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", "", text):
            raise ValueError(f"not in the part of PromQL that is evaluated here: {text}")
        self._at = 0
        self.evaluate = self._comparison()
        if self._at != len(self._tokens):
            raise ValueError(f"cannot read {self._tokens[self._at :]} in {text}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise ValueError(f"expected {expected or 'more'}, got {token!r}")
        self._at += 1
        return token

    def _comparison(self) -> Evaluate:
        left = self._quotient()
        if self._peek() != ">":
            return left
        self._take(">")
        limit = float(self._take())
        return lambda data, now: {key: value for key, value in left(data, now).items() if value > limit}

    def _quotient(self) -> Evaluate:
        left = self._term()
        if self._peek() != "/":
            return left
        self._take("/")
        right = self._term()

        def divide(data: Recording, now: float) -> Vector:
            divisors = right(data, now)
            pairs = ((key, value, divisors.get(key)) for key, value in left(data, now).items())
            return {key: value / by if by else math.nan for key, value, by in pairs if by is not None}

        return divide

    def _term(self) -> Evaluate:
        name = self._take()
        match name:
            case "sum" | "max":
                return self._aggregation(sum if name == "sum" else max)
            case "increase" | "rate":
                return self._increase(per_second=name == "rate")
            case "absent":
                inner = self._argument()
                return lambda data, now: {} if inner(data, now) else {frozenset(): 1.0}
            case "histogram_quantile":
                return self._quantile()
        return self._selector(name)

    def _argument(self) -> Evaluate:
        self._take("(")
        inner = self._comparison()
        self._take(")")
        return inner

    def _aggregation(self, combine: Callable[[Iterable[float]], float]) -> Evaluate:
        kept: list[str] = []
        if self._peek() == "by":
            self._take("by")
            self._take("(")
            while (token := self._take()) != ")":
                kept += [token] if token != "," else []
        inner = self._argument()

        def aggregate(data: Recording, now: float) -> Vector:
            groups: dict[Labels, list[float]] = {}
            for labels, value in inner(data, now).items():
                key = frozenset(pair for pair in labels if pair[0] in kept)
                groups.setdefault(key, []).append(value)
            return {key: combine(values) for key, values in groups.items()}

        return aggregate

    def _matchers(self) -> Callable[[Mapping[str, str]], bool]:
        tests: list[Callable[[Mapping[str, str]], bool]] = []
        if self._peek() == "{":
            self._take("{")
            while self._peek() != "}":
                tests.append(_matcher(self._take(), self._take(), self._take().strip('"')))
                if self._peek() == ",":
                    self._take(",")
            self._take("}")
        return lambda labels: all(test(labels) for test in tests)

    def _selector(self, name: str) -> Evaluate:
        matches = self._matchers()
        return lambda data, now: {
            labels: values[-1] for labels, values in data.select(name, matches, now - LOOKBACK, now).items()
        }

    def _increase(self, *, per_second: bool) -> Evaluate:
        self._take("(")
        name, matches = self._take(), self._matchers()
        self._take("[")
        span = seconds(self._take())
        self._take("]")
        self._take(")")
        divisor = span if per_second else 1.0
        return lambda data, now: {
            labels: sum(max(0.0, after - before) for before, after in itertools.pairwise(values)) / divisor
            for labels, values in data.select(name, matches, now - span, now).items()
            if len(values) > 1
        }

    def _quantile(self) -> Evaluate:
        self._take("(")
        share = float(self._take())
        self._take(",")
        inner = self._comparison()
        self._take(")")

        def quantile(data: Recording, now: float) -> Vector:
            groups: dict[Labels, dict[float, float]] = {}
            for labels, count in inner(data, now).items():
                bound = float(dict(labels)["le"])
                key = frozenset(pair for pair in labels if pair[0] != "le")
                groups.setdefault(key, {})[bound] = count
            return {key: _interpolated(share, buckets) for key, buckets in groups.items()}

        return quantile


Evaluate = Callable[[Recording, float], Vector]


def _matcher(label: str, operator: str, text: str) -> Callable[[Mapping[str, str]], bool]:
    match operator:
        case "=":
            return lambda labels: labels.get(label, "") == text
        case "!=":
            return lambda labels: labels.get(label, "") != text
        case "=~":
            return lambda labels: re.fullmatch(text, labels.get(label, "")) is not None
        case "!~":
            return lambda labels: re.fullmatch(text, labels.get(label, "")) is None
    raise ValueError(f"{operator} is not a matcher")


def _interpolated(share: float, buckets: Mapping[float, float]) -> float:
    """Return a quantile as Prometheus estimates it: linear within the bucket that has it."""
    bounds = sorted(buckets)
    rank = share * buckets[math.inf]
    if not buckets[math.inf]:
        return math.nan
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if math.isinf(bound):
                return lower
            within = buckets[bound] - below
            return lower + (bound - lower) * ((rank - below) / within if within else 1.0)
        lower, below = bound, buckets[bound]
    return math.nan
